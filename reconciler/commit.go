package reconciler

import (
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/quota"
	"github.com/musterhq/muster/schema"
)

// Adopt returns what takes a compiled commit into the desired data, and the events of
// it: see intent.Adopt, with what admission says of the jobs that it brings. desired is
// intent.Of s.
func Adopt(s *model.State, desired *intent.Desired, c schema.Compiled, now time.Time) ([]model.Write, []schema.Event) {
	a := intent.Adopt(s, desired, c, now)
	var rejected []schema.Event
	if a.Next != nil {
		rejected = quota.Rejections(s, &a.Head, a.Next, now)
	}
	return a.Writes, slices.Concat(a.Events, rejected, a.Promoted)
}
