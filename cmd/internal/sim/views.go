package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// sentView is the newest view that a master has sent a machine in its session.
type sentView struct {
	epoch, version uint64
	tasks          []sentTask // by generation
	logins         string     // as loginsIn has them
}

// sentTask is what a view says of a task, but for why it is to stop: that may change later.
type sentTask struct {
	task       schema.TaskName
	generation uint64
	data       schema.Digest
	stops      bool
	alloc      schema.AllocUse
	holds      string // of ports and devices
	brings     string // that it is to have next
}

func sentOf(a *schema.Assignment) sentTask {
	t := sentTask{task: a.Task, generation: a.Generation, data: a.Data, stops: a.Stop != nil, brings: strings.Join(a.Bring, " ")}
	if a.Alloc != nil {
		t.alloc = *a.Alloc
	}
	if len(a.Ports)+len(a.Devices) > 0 {
		t.holds = fmt.Sprint(a.Ports, a.Devices)
	}
	return t
}

func byGeneration(tasks []sentTask) []sentTask {
	slices.SortFunc(tasks, func(a, b sentTask) int { return cmp.Compare(a.generation, b.generation) })
	return tasks
}

// checkView: a view is sent in the session that the machine has, is newer than the
// one before and says something else, and nothing is sent to a machine of a restored cell
// before all have reported.
func (w *World) checkView(machine string, v *schema.View) {
	m := w.master
	is, was := sentView{epoch: v.Epoch, version: v.Version, logins: loginsIn(v)}, m.sent[machine]
	for i := range v.Assignments {
		is.tasks = append(is.tasks, sentOf(&v.Assignments[i]))
	}
	byGeneration(is.tasks)
	m.sent[machine] = is
	switch {
	case m.epochs[machine] != v.Epoch:
		w.violate("machine %s is sent a view in session %d, and has session %d", machine, v.Epoch, m.epochs[machine])
	case m.version >= v.Version:
		w.violate("machine %s is sent view %d after view %d", machine, v.Version, m.version)
	case was.epoch == v.Epoch && slices.Equal(was.tasks, is.tasks) && was.logins == is.logins:
		w.violate("machine %s is sent a view that says what the one before said", machine)
	case m.state.Recovering():
		w.violate("machine %s is sent a view, and the machines of the restored cell have not reported", machine)
	}
}

// checkViews: once a master has decided, each machine that is connected was sent what
// the store says of it, all of it and nothing else.
func (w *World) checkViews() {
	m := w.master
	if m.state.Recovering() {
		return
	}
	stored := map[string][]sentTask{}
	for name, c := range m.state.Chunks {
		for i := range c.Tasks {
			if t := &c.Tasks[i]; t.Machine != "" {
				stored[t.Machine] = append(stored[t.Machine], sentOf(&schema.Assignment{
					Task: name.Job.Task(t.Index), Generation: t.Generation, Data: w.runDigest(t.Data), Stop: t.Stop, Ports: t.Ports, Devices: t.Devices, Alloc: t.Alloc, Bring: t.Bring,
				}))
			}
		}
	}
	for machine, epoch := range m.epochs {
		if m.state.Restored != nil && m.reported[machine] == nil {
			continue // what it holds is to be taken over first
		}
		switch has, want := m.sent[machine], byGeneration(stored[machine]); {
		case has.epoch != epoch:
			w.violate("machine %s was not sent what is stored of it: nothing yet, and the store has\n%+v", machine, want)
		case !slices.Equal(has.tasks, want):
			w.violate("machine %s was not sent what is stored of it: it was sent\n%+v\nand the store has\n%+v", machine, has.tasks, want)
		case has.logins != w.loginsFor(machine):
			w.violate("machine %s was sent the logins %q, and is to have %q", machine, has.logins, w.loginsFor(machine))
		}
	}
}

// runDigest is the digest of what an agent of this release knows of job data.
func (w *World) runDigest(data schema.Digest) schema.Digest {
	if w.oracle.data[data] != nil {
		return data
	}
	return schema.DigestOf(w.master.state.Data[data])
}
