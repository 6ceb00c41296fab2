package placement

import "github.com/musterhq/muster/schema"

// Load is how much of a machine tasks have.
type Load struct {
	Machine string
	// Used is the largest share that they have of a resource of the machine, of which devices
	// together are one: what is held back for them, from 0, and above 1 where that is more
	// than there is.
	Used  float64
	Tasks int
	// Claims are how many of the tasks are not there yet.
	Claims int

	slot int32
}

// Loads returns the loads of the machines that may get tasks, in an order that is always the same
// for the same machines. The tasks of jobs that do not count are left out, and those in allocs,
// which take what is the alloc's.
func Loads(s *Snapshot, counts func(schema.JobName) bool) []Load {
	s.merge()
	known := make([]int8, s.jobs.Len()) // 1: it counts, -1: it does not
	out := make([]Load, 0, s.Len())
	for slot := range s.nodes.Len() {
		if s.rows.At(slot).state != stateUp {
			continue
		}
		n := s.nodes.At(slot)
		load := Load{Machine: n.Name, slot: slot}
		var has vector
		devices := 0
		for id := n.first; id >= 0; {
			t := s.tasks.At(id)
			if id = t.nextHere; t.wants.set != 0 {
				continue
			}
			if known[t.job] == 0 {
				if known[t.job] = -1; counts(s.jobs.At(t.job).name) {
					known[t.job] = 1
				}
			}
			if known[t.job] < 0 {
				continue
			}
			load.count(t, &has)
			for _, u := range t.devices {
				devices += int(u.Milli)
			}
		}
		load.Used = shareOf(&has, vectorOf(n.Capacity))
		if devices > 0 {
			load.Used = max(load.Used, float64(devices)/float64(DeviceMilli*len(n.devices)))
		}
		out = append(out, load)
	}
	return out
}

// count takes a task into account.
func (l *Load) count(t *task, has *vector) {
	l.Tasks++
	if t.claim {
		l.Claims++
	}
	for d, v := range t.reserv {
		has[d] += v
	}
}

// shareOf returns the largest share of what there is. What there is nothing of is left out.
func shareOf(has *vector, capacity vector) (most float64) {
	for d, v := range has {
		if capacity[d] > 0 {
			most = max(most, float64(v)/float64(capacity[d]))
		}
	}
	return most
}
