package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/schema"
)

// id distinguishes the machine from another one with its name. It is drawn anew with the state
// directory.
func (m *machine) id() string {
	if m.named != "" {
		return m.named
	}
	return fmt.Sprintf("%s-id-%d", m.name, m.drawn)
}

// seen is the highest epoch and generation that a machine was sent.
func (m *machine) seen() schema.Seen {
	s := schema.Seen{Epoch: m.disk.epoch}
	if m.disk.view != nil {
		for i := range m.disk.view.Assignments {
			s.Generation = max(s.Generation, m.disk.view.Assignments[i].Generation)
		}
	}
	return s
}

// losesMachine has a machine be silent for so long that it is lost, mostly one of a rack
// in which another one is silent.
func (w *World) losesMachine(a Action) bool {
	m := w.machine(a)
	for _, x := range w.machines {
		if y := w.machines[(x.index+racks)%len(w.machines)]; a.N%3 != 0 && !x.open(w.now) && y.open(w.now) && y.rack() == x.rack() {
			m = y
			break
		}
	}
	d := between(a.N/2, 62, 1500)
	if modulo(a.N, 2) == 1 {
		w.Halt(m.name, d, false)
	}
	w.cut(m, true, true, d)
	return true
}

// losesDisk has a machine restart with an empty state directory.
func (w *World) losesDisk(a Action) bool { return w.replace(w.machine(a)) }

// replace puts other hardware in the place of a machine.
func (w *World) replace(m *machine) bool {
	w.note("the disk of %s is lost", m.name)
	w.Reboot(m.name)
	m.drawn++
	m.named = ""
	clear(m.content)
	m.disk = disk{fates: map[int]writeOutcome{}, unsynced: map[string]func(){}, refused: map[string]bool{}, writes: m.disk.writes}
	return true
}

// asksForName has another machine ask for the name of one for a while.
func (w *World) asksForName(a Action) bool {
	m := w.machine(a)
	m.strange++
	return w.until(&m.stranger, mostly(a.N, 10, 150), "another machine says that it is "+m.name)
}

// turnStranger has another machine ask for a name: it gets it only when the machine
// that has it is lost, and no task waits for that. Then it is the machine.
func (w *World) turnStranger(m *machine) error {
	if !w.now.Before(m.stranger) || w.turns%4 != 0 || w.now.Before(w.master.busy) {
		return nil
	}
	master := w.master
	was := master.state.Machines[m.name]
	info := m.info()
	info.ID, info.Boot, info.Seen = fmt.Sprintf("%s-stranger-%d", m.name, m.strange), "another", schema.Seen{}
	info.Link = schema.Connection{From: "elsewhere", Answers: master.epochs[m.name] != 0 && m.agent != nil && !w.now.Before(m.stopped) && m.open(w.now)}
	silence := w.now.Sub(w.oracle.reported[m.name])
	waits := w.waitedFor(m.name)
	epoch, err := master.Join(info, w.clock.read(w.now))
	if stored := w.carryOut(); stored != nil {
		return stored
	}
	master.news = true
	w.dropReport(m.name)
	is := master.state.Machines[m.name]
	gives := was != nil && was.Forgotten == nil && (err == nil || is == nil || is.Forgotten != nil)
	if taken := (*schema.TakenError)(nil); err != nil && !gives && was != nil && was.Forgotten == nil && !errors.As(err, &taken) {
		w.violate("machine %s: another one that asks for its name is refused: %v", m.name, err)
	}
	if gives && (silence < time.Minute || waits != "") {
		w.violate("another machine gets the name of %s, which reported %s ago, and task %q waits for it", m.name, silence, waits)
	}
	if err == nil {
		w.takesName(m, &info, epoch)
	}
	return nil
}

// takesName has the machine be the one that got its name.
func (w *World) takesName(m *machine, info *schema.MachineInfo, epoch uint64) {
	if epoch <= w.oracle.epochs[m.name] {
		w.violate("machine %s was given epoch %d after %d", m.name, epoch, w.oracle.epochs[m.name])
	}
	w.oracle.epochs[m.name] = epoch
	w.master.Leave(m.name, epoch)
	w.dropReport(m.name)
	m.stranger = time.Time{}
	w.replace(m)
	m.named = info.ID
}

// waitedFor returns a task that must never run twice and may run on a machine, "" if
// there is none.
func (w *World) waitedFor(machine string) string {
	for name, c := range w.master.state.Chunks {
		for i := range c.Tasks {
			t := &c.Tasks[i]
			if t.Machine != machine {
				continue
			}
			d := w.master.state.Data[t.Data]
			if r := w.master.state.Jobs[name.Job]; r != nil && r.Admitted != "" {
				d = w.master.state.Data[r.Admitted]
			}
			if d.NeverTwice() && t.Index < d.Tasks {
				return name.Job.Task(t.Index).Short()
			}
		}
	}
	return ""
}

// contested reports whether a machine's name is another's, as the master knows.
func (w *World) contested(m *machine) bool {
	if w.master == nil {
		return false
	}
	r := w.master.state.Machines[m.name]
	return r != nil && (r.Forgotten != nil || r.ID != "" && r.ID != m.id())
}

// forgetReplaced forgets machines whose disks are lost, as people do when tasks wait
// for them.
func (w *World) forgetReplaced() {
	for _, m := range w.machines {
		if w.master != nil && !w.now.Before(w.master.busy) && w.contested(m) && w.master.epochs[m.name] == 0 && w.master.state.Machines[m.name].Forgotten == nil {
			w.forget(m)
		}
	}
}
