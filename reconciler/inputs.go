package reconciler

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// head is the newest commit of the repository.
type head struct {
	commit     string
	seen       time.Time
	overtaken  []string // heads that it comes from, seen since one was compiled
	reported   bool     // it was said that it has converged
	compileErr error    // what is wrong with its compilation
}

// Head says what is new about the repository: another head, or other trouble with
// it.
func (m *Master) Head(s model.Seen, now time.Time) {
	m.news = true
	m.addEvents(model.SourceEvents(m.source, s, now))
	m.source = s
	if s.Commit == "" || s.Commit == m.head.commit {
		return
	}
	overtaken := m.head.overtaken
	if s.Rewritten == "" {
		overtaken = append(overtaken, m.head.commit)
	} else {
		overtaken = nil // which of them it comes from is not known
	}
	m.head = head{commit: s.Commit, seen: now, overtaken: overtaken}
}

// Looked says that the repository is as Head said last, and was last known to be
// so at the given time. There is nothing to decide.
func (m *Master) Looked(at time.Time) {
	m.source.At = at
}

// CompileFailed says that a commit could not be compiled for a reason that is not
// in the commit. It is shown until the commit is adopted, or another is the head.
func (m *Master) CompileFailed(commit string, err error) {
	if commit == m.head.commit {
		m.head.compileErr, m.head.overtaken, m.news = err, nil, true
	}
}

// Compiled takes a commit into the desired data, if it is the repository's head
// still, or newer heads come from it: when commits come faster than they are compiled,
// the newest that can be had is applied. While the cell is suspended the newest is kept
// until that ends.
func (m *Master) Compiled(c *schema.Compiled, now time.Time) {
	if c.Commit != m.head.commit && !slices.Contains(m.head.overtaken, c.Commit) {
		return // the history was rewritten meanwhile
	}
	m.head.compileErr, m.head.overtaken, m.news = nil, nil, true
	if m.state.Suspended() {
		m.kept = &keptCommit{c, now}
		return
	}
	m.adopt(c, now, nil)
}

// keptCommit is a commit that waits for the end of a suspension of the cell.
type keptCommit struct {
	commit *schema.Compiled
	since  time.Time
}

// adopt takes a commit into the desired data; delay is how long it was kept, nil if it was not.
func (m *Master) adopt(c *schema.Compiled, now time.Time, delay *schema.EventDelay) {
	m.kept = nil
	writes, events := Adopt(m.state, m.desired(), *c, now)
	for i := range events {
		if e := &events[i]; delay != nil && e.Kind == schema.EventApply && e.Commit == c.Commit {
			e.Input = &schema.EventInput{Delayed: delay}
		}
	}
	m.change(writes, events)
	m.out.Adopts = c.Commit
}

// Report takes an agent's report. One that repeats the last only shows that the machine is
// up: it is no news. It errs when epoch is not that of the machine's newest connection.
func (m *Master) Report(machine string, epoch uint64, r schema.Report, now time.Time) error {
	if have, ok := m.epochs[machine]; !ok || have != epoch {
		return fmt.Errorf("machine %s: report of epoch %d, but %d is connected", machine, epoch, have)
	}
	if !m.observed.Repeats(&r, now) {
		m.news = true
		m.addEvents(m.observed.AddReport(r, now))
	}
	return nil
}

// UpdateSession takes an update of a session of a link shard. It errs when the session is
// not the machine's newest, or cannot go on with this master: it is to end then, and the
// machine to join again.
func (m *Master) UpdateSession(w *model.SessionUpdate, now time.Time) error {
	if w.Left {
		m.Leave(w.Machine, w.Epoch)
		return nil
	}
	if w.Resume != nil {
		if err := m.resume(w); err != nil {
			return err
		}
	}
	if have := m.epochs[w.Machine]; have != w.Epoch {
		return fmt.Errorf("machine %s: update of session %d, but %d is connected", w.Machine, w.Epoch, have)
	}
	if w.Report != nil {
		if err := m.Report(w.Machine, w.Epoch, *w.Report, now); err != nil {
			return err
		}
	} else if last := m.observed.Last(w.Machine); w.Reported && last != nil {
		if err := m.Report(w.Machine, w.Epoch, last.Report, now); err != nil {
			return err
		}
	}
	if w.Usage != nil {
		m.Usage(w.Epoch, w.Usage, now)
	}
	if w.Content != nil {
		m.observed.ChangeContent(w.Machine, w.Content)
	}
	return nil
}

// Usage takes what a machine uses, unless epoch is not that of its newest
// connection. There is nothing to decide.
func (m *Master) Usage(epoch uint64, u *schema.MachineUsage, now time.Time) {
	if have, ok := m.epochs[u.Machine]; ok && have == epoch {
		m.observed.AddUsage(u, now)
	}
}

// Sources says from where a machine gets what it is to bring. There is nothing to decide, and
// nothing to store.
func (m *Master) Sources(q *schema.SourceQuestion, now time.Time) schema.SourceAnswer {
	return m.desk.Answer(q, holdings{m, now}, now)
}

// holdings is what the machines hold that are up.
type holdings struct {
	of  *Master
	now time.Time
}

// Holders implements sources.Cell.
func (h holdings) Holders(d schema.Digest) []string { return h.of.observed.Holders(d) }

// Address implements sources.Cell.
func (h holdings) Address(machine string) string {
	last := h.of.observed.Last(machine)
	if _, up := h.of.observed.UpUntil(machine, h.now); !up || last == nil {
		return ""
	}
	shares := last.Report.Machine.Shares
	if !strings.HasPrefix(shares, ":") {
		return shares
	}
	r := h.of.state.Machines[machine]
	switch {
	case r == nil || r.Address == "":
		return ""
	case strings.Contains(r.Address, ":"): // IPv6
		return "[" + r.Address + "]" + shares
	}
	return r.Address + shares
}

// Leave says that a machine's connection of the given epoch has ended.
func (m *Master) Leave(machine string, epoch uint64) {
	if m.epochs[machine] == epoch {
		m.news = true
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
