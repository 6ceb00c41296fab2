package sim

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// told is the newest view that a master has sent a machine in its session.
type told struct {
	epoch, version uint64
	lines          []string // what it says, sorted
}

// checkTells: a view is sent in the session that the machine has, is newer than the
// one before and says something else, and no machine of a restored cell is told
// anything before all were heard.
func (w *World) checkTells(machine string, v *schema.View) {
	m := w.master
	is, was := told{v.Epoch, v.Version, linesOf(v.Assignments)}, m.told[machine]
	m.told[machine] = is
	switch {
	case m.epochs[machine] != v.Epoch:
		w.violate("machine %s is sent a view in session %d, and has session %d", machine, v.Epoch, m.epochs[machine])
	case m.version >= v.Version:
		w.violate("machine %s is sent view %d after view %d", machine, v.Version, m.version)
	case was.epoch == v.Epoch && slices.Equal(was.lines, is.lines):
		w.violate("machine %s is sent a view that says what the one before said", machine)
	case m.state.Recovering():
		w.violate("machine %s is sent a view, and the machines of the restored cell have not been heard", machine)
	}
}

// checkTold: once a master has decided, each machine that is connected was sent what
// the store says of it, all of it and nothing else.
func (w *World) checkTold() {
	m := w.master
	if m.state.Recovering() {
		return
	}
	want := map[string][]string{}
	for name, c := range m.state.Chunks {
		for i := range c.Tasks {
			if t := &c.Tasks[i]; t.Machine != "" {
				want[t.Machine] = append(want[t.Machine], line(&schema.Assignment{
					Task: name.Job.Task(t.Index), Generation: t.Generation, Data: w.runDigest(t.Data), Stop: t.Stop, Ports: t.Ports, Devices: t.Devices, Alloc: t.Alloc,
				}))
			}
		}
	}
	for machine, epoch := range m.epochs {
		if m.state.Restored != nil && m.heard[machine] == nil {
			continue // what it holds is to be taken over first
		}
		has, wants := m.told[machine], want[machine]
		slices.Sort(wants)
		if has.epoch == epoch && slices.Equal(has.lines, wants) {
			continue
		}
		if has.epoch != epoch {
			has.lines = []string{"nothing yet"}
		}
		w.violate("machine %s was not sent what is stored of it: it was sent\n%s\nand the store has\n%s", machine, strings.Join(has.lines, "\n"), strings.Join(wants, "\n"))
	}
}

// runDigest is the digest of what an agent of this release knows of job data.
func (w *World) runDigest(data schema.Digest) schema.Digest {
	if w.oracle.data[data] != nil {
		return data
	}
	return schema.DigestOf(w.master.state.Data[data])
}

func linesOf(view []schema.Assignment) []string {
	out := make([]string, 0, len(view))
	for i := range view {
		out = append(out, line(&view[i]))
	}
	slices.Sort(out)
	return out
}

// line says what a machine is told of a task. Why it is to stop may change later.
func line(a *schema.Assignment) string {
	return fmt.Sprint(a.Task, " ", a.Generation, " ", a.Data, " stops: ", a.Stop != nil, " ", a.Ports, a.Devices, " in ", a.Alloc)
}
