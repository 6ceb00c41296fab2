package reconciler

import (
	"errors"
	"fmt"
	"time"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Head says what is new about the repository: another head, or other trouble with
// it.
func (m *Master) Head(s model.Seen, now time.Time) {
	m.tell(model.SourceEvents(m.source, s, now))
	m.source = s
	if s.Commit != "" && s.Commit != m.head {
		m.head, m.headAt, m.reported, m.compileErr = s.Commit, now, false, nil
	}
}

// Looked says that the repository is as Head said last, and was last known to be
// so at the given time. There is nothing to decide.
func (m *Master) Looked(at time.Time) {
	m.source.At = at
	m.status = nil
}

// CompileFailed says that a commit could not be compiled for a reason that is not
// in the commit. It is shown until the commit is adopted, or another is the head.
func (m *Master) CompileFailed(commit string, err error) {
	if commit == m.head {
		m.compileErr = err
	}
}

// Compiled takes a commit into the desired data, if it is the repository's head
// still. While the cell is suspended the newest is kept until that ends.
func (m *Master) Compiled(c *schema.Compiled, now time.Time) {
	if c.Commit != m.head {
		return // a newer commit has been seen meanwhile
	}
	m.compileErr = nil
	if m.state.Suspended() {
		m.kept = c
		return
	}
	m.adopt(c, now)
}

func (m *Master) adopt(c *schema.Compiled, now time.Time) {
	m.kept = nil
	m.change(Adopt(m.state, m.desired(), *c, now))
	m.out.Adopts = c.Commit
}

// Join gives a machine that connects its link epoch, which holds when what is
// Ready is stored. It errs with a *schema.BehindError when the machine was told of
// more than the store knows, with a *schema.TakenError when it is another agent's,
// and with others when it shall ask again.
func (m *Master) Join(info schema.MachineInfo, now time.Time) (uint64, error) {
	if err := control.Behind(m.state, &info); err != nil {
		m.tell(m.observed.Refuse(info.Name, err, now))
		return 0, err
	}
	if err := m.contest(&info, now); err != nil {
		return 0, err
	}
	epoch, writes, events := control.Join(m.state, m.desired(), info, now)
	m.change(writes, events)
	m.epochs[info.Name] = epoch
	m.observed.Join(info.Name, now)
	delete(m.pushed, info.Name)
	m.unsent[info.Name] = struct{}{}
	return epoch, nil
}

// contest errs unless an agent that connects may have the name that it gives now. If
// it may when the machine that had it is forgotten, that is.
func (m *Master) contest(info *schema.MachineInfo, now time.Time) error {
	replaces, err := control.Contest(m.Input(now), info)
	if taken := (*schema.TakenError)(nil); errors.As(err, &taken) {
		m.tell(m.observed.RefuseName(taken, now))
	}
	if err != nil || !replaces {
		return err
	}
	reason := fmt.Sprintf("it is lost, and another agent has its name now (%s)", schema.PlaceOf(info))
	if _, err := m.Forget(info.Name, schema.Forgotten{Reason: reason}, false, now); err != nil {
		return err
	}
	return fmt.Errorf("machine %s: the tasks of the one that had this name are given up first", info.Name)
}

// Forget has a machine forgotten whose agent is not connected: the next decision
// gives its tasks up, whatever they are, and then it is out of the state. With dry it
// only says what that would be. It errs with a *NotFoundError if there is no such
// machine, and with a *LinkedError if its agent is connected.
func (m *Master) Forget(machine string, x schema.Forgotten, dry bool, now time.Time) (schema.Forgetting, error) {
	_, linked := m.epochs[machine]
	x.At = now
	f, err := control.Forget(m.state, machine, x, linked)
	if err != nil || dry {
		return f.Answer, err
	}
	m.change(f.Writes, f.Events)
	m.observed.Dismiss(machine)
	f.Answer.Done = true
	return f.Answer, nil
}

// Report takes an agent's report, and reports whether there is anything to decide by it:
// one that repeats the last is only heard. It errs when epoch is not that of the machine's
// newest connection.
func (m *Master) Report(machine string, epoch uint64, r schema.Report, now time.Time) (news bool, err error) {
	if have, ok := m.epochs[machine]; !ok || have != epoch {
		return false, fmt.Errorf("machine %s: report of epoch %d, but %d is connected", machine, epoch, have)
	}
	if m.observed.Repeats(&r, now) {
		return false, nil
	}
	m.tell(m.observed.Hear(r, now))
	return true, nil
}

// Usage takes what a machine uses, unless epoch is not that of its newest
// connection. There is nothing to decide.
func (m *Master) Usage(epoch uint64, u *schema.MachineUsage, now time.Time) {
	if have, ok := m.epochs[u.Machine]; ok && have == epoch {
		m.observed.HearUsage(u, now)
	}
}

// Leave says that a machine's connection of the given epoch has ended.
func (m *Master) Leave(machine string, epoch uint64) {
	if m.epochs[machine] == epoch {
		delete(m.epochs, machine)
		delete(m.pushed, machine)
	}
}

// Suspend leaves a job as it is from now on, or all of them; lasts is how long, 0
// for as long as nobody ends it. It errs with a *NotFoundError if the cell runs no such
// job.
func (m *Master) Suspend(x schema.Suspension, lasts time.Duration, now time.Time) error {
	if lasts > 0 {
		x.Until = now.Add(lasts)
	}
	writes, events, err := control.Suspend(m.state, m.desired(), x, now)
	if err != nil {
		return err
	}
	m.change(writes, events)
	return nil
}

// Resume ends the suspension of a job, or the one of all of them; by is who asks
// for it. It returns the one that was, nil if there was none, and errs with a
// *NotFoundError if the cell runs no such job.
func (m *Master) Resume(name, by string, now time.Time) (*schema.Suspension, error) {
	was := m.state.Suspensions[name]
	writes, events, err := control.Resume(m.state, m.desired(), name, by, now)
	if err != nil {
		return nil, err
	}
	m.change(writes, events)
	return was, nil
}

// Restart restarts the tasks of a job that run, or one task. It errs with a
// *NotFoundError if the cell runs no such job or task, or must not restart it.
func (m *Master) Restart(x schema.RestartRequest, now time.Time) (schema.Restarting, error) {
	return m.restart(control.AskRestart(m.state, m.desired(), x, now))
}

// CancelRestart ends the restart of a job, with those of its tasks, or of one task;
// by is who asks for it. It errs with a *NotFoundError if the cell has no such job.
func (m *Master) CancelRestart(name, by string, now time.Time) (schema.Restarting, error) {
	return m.restart(control.CancelRestart(m.state, name, by, now))
}

func (m *Master) restart(c control.RestartChange, err error) (schema.Restarting, error) {
	if err != nil {
		return schema.Restarting{}, err
	}
	m.change(c.Writes, c.Events)
	return c.Answer, nil
}
