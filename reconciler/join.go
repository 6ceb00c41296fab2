package reconciler

import (
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// MayJoin reports whether Join may be given for a machine now. It may unless something
// is not stored yet that the answer depends on: joins of machines with other names and
// other ids are stored together.
func (m *Master) MayJoin(info *schema.MachineInfo) bool {
	if len(m.out.Writes) == 0 {
		return true
	}
	_, name := m.joining[info.Name]
	_, id := m.joining[idKey(info)]
	return len(m.joining) > 0 && !name && !id
}

// idKey is the key of an agent's id among names, which have no slash; of agents without an
// id it is that of the name.
func idKey(info *schema.MachineInfo) string {
	if info.ID == "" {
		return info.Name
	}
	return "id/" + info.ID
}

// Join gives a machine that connects its link epoch, which holds when what is
// Ready is stored. It errs with a *schema.BehindError when the machine was sent
// more than the store knows, with a *schema.TakenError when it is another agent's,
// and with others when it shall ask again. It panics unless MayJoin.
func (m *Master) Join(info schema.MachineInfo, now time.Time) (uint64, error) {
	if !m.MayJoin(&info) {
		m.mustBeStored()
	}
	m.news = true
	if err := control.Behind(m.state, &info); err != nil {
		m.addEvents(m.observed.Refuse(info.Name, err, now))
		return 0, err
	}
	if err := m.contest(&info, now); err != nil {
		return 0, err
	}
	epoch, writes, events := control.Join(m.state, m.desired(), info, now)
	m.join(&info, writes, events)
	m.epochs[info.Name] = epoch
	m.observed.Join(info.Name, now)
	delete(m.pushed, info.Name)
	m.unsent[info.Name] = struct{}{}
	return epoch, nil
}

// resume takes over a session that another master welcomed. The epoch is in the store
// since before that, and was given to no other session: nothing has to be stored. A
// machine that joined again meanwhile has another epoch there. In a restored store an epoch
// may be given twice, and machines must report what is not in it before anything is sent
// to them: all machines join a restored cell again, and so does one that has assignments
// which the store does not know.
func (m *Master) resume(w *model.SessionUpdate) error {
	r := m.state.Machines[w.Machine]
	switch {
	case r == nil || r.Epoch != w.Epoch:
		return fmt.Errorf("machine %s: its connection %d is not its newest", w.Machine, w.Epoch)
	case r.Forgotten != nil:
		return fmt.Errorf("machine %s is %s", w.Machine, r.Forgotten)
	case w.Epoch <= m.state.Floor():
		return fmt.Errorf("machine %s: the store was restored since it joined", w.Machine)
	}
	info := schema.MachineInfo{Name: w.Machine, Seen: schema.Seen{Epoch: w.Epoch}}
	if w.Report != nil {
		for i := range w.Report.Tasks {
			info.Seen.Generation = max(info.Seen.Generation, w.Report.Tasks[i].Generation)
		}
	}
	if err := control.Behind(m.state, &info); err != nil {
		return err
	}
	if have, ok := m.epochs[w.Machine]; ok && have == w.Epoch {
		return nil // the shard has attached again
	}
	m.epochs[w.Machine], m.news = w.Epoch, true
	delete(m.pushed, w.Machine)
	m.unsent[w.Machine] = struct{}{}
	return nil
}

// join hands out what the join of a machine writes, with that of others.
func (m *Master) join(info *schema.MachineInfo, writes []model.Write, events []schema.Event) {
	m.joining[info.Name], m.joining[idKey(info)] = struct{}{}, struct{}{}
	m.out.Writes = append(m.out.Writes, writes...)
	m.addEvents(events)
}

// contest errs unless an agent that connects may have the name that it gives now. If
// it may when the machine that had it is forgotten, that is.
func (m *Master) contest(info *schema.MachineInfo, now time.Time) error {
	replaces, err := control.Contest(m.Input(now), info)
	if taken := (*schema.TakenError)(nil); errors.As(err, &taken) {
		m.addEvents(m.observed.RefuseName(taken, now))
	}
	if err != nil || !replaces {
		return err
	}
	reason := fmt.Sprintf("it is lost, and another agent has its name now (%s)", schema.PlaceOf(info))
	f, err := m.forgetting(info.Name, schema.Forgotten{Reason: reason}, now)
	if err != nil {
		return err
	}
	m.join(info, f.Writes, f.Events)
	m.observed.Dismiss(info.Name)
	return fmt.Errorf("machine %s: the tasks of the one that had this name are given up first", info.Name)
}

// Forget has a machine forgotten whose agent is not connected: the next decision
// gives its tasks up, whatever they are, and then it is out of the state. With dry it
// only says what that would be. It errs with a *NotFoundError if there is no such
// machine, and with a *LinkedError if its agent is connected.
func (m *Master) Forget(machine string, x schema.Forgotten, dry bool, now time.Time) (schema.Forgetting, error) {
	f, err := m.forgetting(machine, x, now)
	if err != nil || dry {
		return f.Answer, err
	}
	m.change(f.Writes, f.Events)
	m.observed.Dismiss(machine)
	f.Answer.Done = true
	return f.Answer, nil
}

// forgetting is what it takes to forget a machine.
func (m *Master) forgetting(machine string, x schema.Forgotten, now time.Time) (control.ForgetChange, error) {
	_, linked := m.epochs[machine]
	x.At = now
	return control.Forget(m.state, machine, x, linked)
}
