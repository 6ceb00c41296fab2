package control

import (
	"github.com/musterhq/muster/schema"
)

// followAllocs stops the tasks whose alloc has ended, or is to. Jobs that are at
// rest are looked at only when the step has changed something of their set.
func followAllocs(s pass, jobs []schema.JobName) {
	changed := map[schema.JobName]bool{}
	for _, name := range s.ChangedChunks() {
		changed[name.Job] = true
	}
	active := map[schema.JobName]bool{}
	for _, name := range jobs {
		active[name] = true
	}
	for _, name := range s.Jobs() {
		set, inside := s.Inside(name)
		if !active[name] && !(inside && changed[set]) {
			continue
		}
		for _, t := range s.Tasks(name) {
			if t.Alloc == nil || t.Machine == "" || t.Stop != nil {
				continue
			}
			if why := s.AllocLeft(name, &t); why != "" {
				s.stop(name, t, schema.Cause{Kind: schema.CauseAllocGone, Message: why, At: s.Now})
			}
		}
	}
}
