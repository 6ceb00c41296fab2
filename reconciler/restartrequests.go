package reconciler

import (
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// restartsNamed returns the restarts of that name, of a job also those of its tasks,
// sorted by name.
func (s *State) restartsNamed(name string) []schema.RestartRequest {
	out := []schema.RestartRequest{}
	job, _, isTask := splitName(s.Cell, name)
	for _, other := range slices.Sorted(maps.Keys(s.Restarts)) {
		if of, _, _ := splitName(s.Cell, other); other == name || !isTask && of == job {
			out = append(out, *s.Restarts[other])
		}
	}
	return out
}

// asked is a restart that is stored.
type asked struct {
	*schema.RestartRequest
	index int // of the task; -1 for all of the job
}

// of reports whether it is of a task.
func (x asked) of(t *schema.TaskRecord) bool { return x.index < 0 || x.index == t.Index }

// restartsByJob returns the restarts of each job, sorted by name; nil if there are
// none.
func (s *State) restartsByJob() map[schema.JobName][]asked {
	if len(s.Restarts) == 0 {
		return nil
	}
	out := map[schema.JobName][]asked{}
	for _, name := range slices.Sorted(maps.Keys(s.Restarts)) {
		job, index, isTask := splitName(s.Cell, name)
		if !isTask {
			index = -1
		}
		out[job] = append(out[job], asked{s.Restarts[name], index})
	}
	return out
}

// splitName parses user/job or user/job/index.
func splitName(cell, name string) (job schema.JobName, index int, isTask bool) {
	parts := strings.Split(name, "/")
	if len(parts) == 3 {
		if i, err := schema.ParseIndex(parts[2]); err == nil {
			index, isTask = i, true
		}
	}
	if len(parts) < 2 {
		return schema.JobName{}, 0, false
	}
	return schema.JobName{Cell: cell, User: parts[0], Job: parts[1]}, index, isTask
}
