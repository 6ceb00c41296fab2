package compile

import (
	"fmt"
	"strconv"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/policytext"
	"github.com/musterhq/muster/schema/valid"
)

// The data of an object has the number of a built-in priority, and policies compare it: priority >= 200. They
// may say the name as jobs do, too: it stands for the number, in what a policy demands of the field priority,
// and where it compares that. The files of a package with policies are changed so that such names are numbers in the
// field of policies, and nowhere else. Jobs, labels, tests and messages may be made from all else there.

// policyField is the hidden field that holds policies: no data, and open.
const policyField = policytext.Field

// priorityField is the field of an object whose names policies may use.
const priorityField = "priority"

// priorityText says which priority an object has in its data; "" if that is a name.
func priorityText(o *object) string {
	data, err := valid.Parse(o.Data)
	fields, ok := data.(map[string]any)
	if err != nil || !ok {
		return ""
	}
	n, err := strconv.Atoi(fmt.Sprint(fields[priorityField]))
	if err != nil {
		return ""
	}
	name := ""
	if band := schema.Priority(n).Band(); n%100 == 0 {
		name = fmt.Sprintf(" (%s)", band)
	}
	return fmt.Sprintf("the priority is %d%s; ", n, name)
}
