package model

import (
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// RestartsNamed returns the restarts of that name, of a job also those of its tasks,
// sorted by name.
func (s *State) RestartsNamed(name string) []schema.RestartRequest {
	out := []schema.RestartRequest{}
	job, _, isTask := SplitName(s.Cell, name)
	for _, other := range slices.Sorted(maps.Keys(s.Restarts)) {
		if of, _, _ := SplitName(s.Cell, other); other == name || !isTask && of == job {
			out = append(out, *s.Restarts[other])
		}
	}
	return out
}

// Restart is a restart that is stored.
type Restart struct {
	*schema.RestartRequest
	Index int // of the task; -1 for all of the job
}

// Of reports whether it is of a task.
func (x Restart) Of(t *schema.TaskRecord) bool { return x.Index < 0 || x.Index == t.Index }

// RestartsByJob returns the restarts of each job, sorted by name; nil if there are
// none.
func (s *State) RestartsByJob() map[schema.JobName][]Restart {
	if len(s.Restarts) == 0 {
		return nil
	}
	out := map[schema.JobName][]Restart{}
	for _, name := range slices.Sorted(maps.Keys(s.Restarts)) {
		job, index, isTask := SplitName(s.Cell, name)
		if !isTask {
			index = -1
		}
		out[job] = append(out[job], Restart{s.Restarts[name], index})
	}
	return out
}

// SplitName parses user/job or user/job/index.
func SplitName(cell, name string) (job schema.JobName, index int, isTask bool) {
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
