package compile

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"cuelang.org/go/cue/errors"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/valid"
)

// What is wrong with a value shows in all that takes it.

// ofArgument is what CUE says of a function, or of text with values in it, for what is wrong with a
// value that it is given.
var ofArgument = regexp.MustCompile(`^(?:(?:error in call to [^ :]+|invalid interpolation): )+((?:[^ :."]+|"[^"]*")(?:\.(?:[^ :."]+|"[^"]*"))+): (.*)$`)

// argument returns the data path of what is wrong, and what it is, if CUE says that of what takes the
// value; a nil path if not.
func argument(e errors.Error) (at []string, text string) {
	m := ofArgument.FindStringSubmatch(qualifier.ReplaceAllString(errorText(e), "$1"))
	if m == nil {
		return nil, ""
	}
	at = pathLabel.FindAllString(m[1], -1)
	if !strings.HasPrefix(at[0], "_") && valid.Of(schema.Kind(at[0])) == nil || slices.Equal(at, e.Path()) {
		return nil, ""
	}
	return at, m[2]
}

var pathLabel = regexp.MustCompile(`[^."]+|"[^"]*"`)

// notGivenOnce returns parameters that are not given, sorted by field, each once: what several
// objects that are made alike do not have is reported of the first.
func notGivenOnce(missing map[string]mistake) (out []mistake) {
	first := map[string]int{} // index in out
	others := map[int]int{}
	for _, field := range slices.Sorted(maps.Keys(missing)) {
		m := missing[field]
		key := m.about + " " + m.Hint
		i, ok := first[key]
		if !ok || m.Hint == "" {
			first[key] = len(out)
			out = append(out, m)
			continue
		}
		others[i]++
	}
	for i, n := range others {
		out[i].Message += fmt.Sprintf(", nor in %d %s", n, schema.Verb(n, "other", "others"))
	}
	return out
}
