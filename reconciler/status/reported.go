package status

import (
	"slices"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// reportedRecord is the record of a task, and what its machine has said of its generation.
type reportedRecord struct {
	*schema.TaskRecord
	said model.ReportedTask // empty if it has none, or has said nothing
}

// hasFailed reports whether any generation of a task, or an incarnation of the one that it has, is
// known to have failed: without one its job does not crash.
func (r reportedRecord) hasFailed() bool {
	return r.said.TaskStatus != nil && (len(r.said.Exits) > 0 || r.said.Failures > 0) ||
		slices.ContainsFunc(r.Causes, func(c schema.Cause) bool {
			return c.Kind == schema.CauseFailed || c.Kind == schema.CauseStartFailed
		})
}
