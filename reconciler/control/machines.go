package control

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// atOnce is how far apart machines may be given up and still count as gone
// together.
const atOnce = 10 * time.Minute

// Behind errs with a *schema.BehindError when a machine that connects was told of
// more than the state knows.
func Behind(s *model.State, info *schema.MachineInfo) error {
	known := schema.Seen{Epoch: max(s.Gone.Epoch, s.Floor()), Generation: max(s.Counter, s.Floor())}
	if was := s.Machines[info.Name]; was != nil {
		known.Epoch = max(known.Epoch, was.Epoch)
	}
	if info.Seen.Epoch > known.Epoch || info.Seen.Generation > known.Generation {
		return &schema.BehindError{Machine: info.Name, Seen: info.Seen, Known: known}
	}
	return nil
}

// Join takes a machine that connects into the state, with an epoch of its own:
// messages of an older connection are refused from then on. The writes must be
// stored before the machine is welcomed.
func Join(s *model.State, desired *intent.Desired, info schema.MachineInfo, now time.Time) (epoch uint64, writes []model.Write, events []schema.Event) {
	r := &schema.MachineRecord{MachineInfo: info, Epoch: max(s.Gone.Epoch, s.Floor()) + 1, Joined: now, From: info.Link.From}
	message := "joined"
	if was := s.Machines[info.Name]; was != nil {
		r.Epoch = max(was.Epoch, s.Floor()) + 1
		r.LostSince = was.LostSince // until its first report, see returned
		message = "joined again"
		if was.Boot != info.Boot {
			message = "joined again after a restart of the machine"
		}
	}
	d := desired.DeclaredOf(&info)
	r.Spoke = d.Gone != nil
	e := schema.Event{At: now, Kind: schema.EventMachine, Machine: info.Name, Message: message}
	return r.Epoch, []model.Write{s.Document(model.KeyMachine+info.Name, r)}, []schema.Event{e}
}

// silent is a machine that is not up.
type silent struct {
	record *schema.MachineRecord
	domain string
	quiet  time.Duration // that it has said nothing
	lost   bool          // for longer than the cell waits
	// gone is the object that declares it gone; nil if none does, or it has
	// spoken since.
	gone *intent.DesiredMachine
}

// dead reports whether somebody has said that the machine is gone for good.
func (q *silent) dead() bool { return q.gone != nil || q.record.Forgotten != nil }

// surveyMachines finds which machines may get tasks, which are given up, and
// which of the tasks of silent ones are rescheduled.
func (s *step) surveyMachines() {
	s.silent, s.released, s.kept = map[string]*silent{}, map[schema.TaskName]string{}, map[schema.TaskName]string{}
	for _, name := range s.names {
		s.look(name)
	}
	if len(s.silent) == 0 && s.base.Loss.Empty() {
		return
	}
	l := s.newRescheduler()
	due := s.dueTasks()
	l.hold(due)
	for _, name := range slices.Sorted(maps.Keys(s.silent)) {
		if q := s.silent[name]; q.record.LostSince.IsZero() && (q.dead() || q.lost && !l.held(q.domain)) {
			s.giveUp(name, q)
		}
	}
	l.release(due)
	l.keep()
}

// look takes one machine into the survey.
func (s *step) look(name string) {
	r := s.lossSetRight(name)
	health, until := s.in.Observed.HealthOf(r, s.now)
	if !until.IsZero() {
		s.wake(until)
	}
	if health == model.HealthUp && r.Forgotten == nil {
		s.up = append(s.up, name)
		delete(s.memo.empty, name)
		s.returned(name)
		return
	}
	d := s.machineSpec(name)
	q := &silent{
		record: r, domain: d.Attributes[s.desired.Policy.Loss().Domain],
		quiet: max(0, s.in.Observed.Silence(r, s.now)), lost: health == model.HealthLost,
	}
	if d.Gone != nil && !r.Spoke {
		if q.quiet >= model.SilentAfter {
			q.gone = d.Gone
		} else {
			s.wake(s.now.Add(model.SilentAfter - q.quiet))
		}
	}
	s.silent[name] = q
}

// lossSetRight returns the record of a machine, and has it stored without a time of
// its loss that a clock wrote down which was ahead.
func (s *step) lossSetRight(name string) *schema.MachineRecord {
	was := s.base.Machines[name]
	if !was.LostSince.After(s.now) {
		return was
	}
	r := *was
	r.LostSince = s.now
	s.machines[name] = &r
	return &r
}

// machineSpec returns what is declared of a machine.
func (s *step) machineSpec(name string) *intent.MachineSpec {
	r, desired := s.base.Machines[name], s.desired
	m := s.memo.orders[name]
	if m == nil || m.record != r || m.desired != desired {
		m = &ordersMemo{r, desired, desired.DeclaredOf(&r.MachineInfo)}
		if s.memo.orders == nil {
			s.memo.orders = map[string]*ordersMemo{}
		}
		s.memo.orders[name] = m
	}
	return &m.orders
}

// closed reports whether a machine shall get nothing new.
func (s *step) closed(machine string) bool {
	return s.base.Machines[machine] != nil && s.machineSpec(machine).Closed()
}

// giveUp takes down that a machine is lost.
func (s *step) giveUp(name string, q *silent) {
	r := *q.record
	r.LostSince = s.now
	s.machines[name] = &r
	q.record = &r
	if r.Forgotten != nil {
		return // of which it was told
	}
	s.event(schema.Event{Kind: schema.EventMachine, Machine: name, Message: "lost: " + s.whyLost(q)})
}

// whyLost says why the tasks of a machine are rescheduled.
func (s *step) whyLost(q *silent) string {
	switch {
	case q.record.Forgotten != nil:
		return q.record.Forgotten.String()
	case q.gone != nil:
		return "declared gone at " + q.gone.Origin.String()
	}
	return "silent for " + s.in.Observed.LostAfter.String()
}

// isUp reports whether a machine may get tasks.
func (s *step) isUp(name string) bool {
	_, ok := slices.BinarySearch(s.up, name)
	return ok
}

// returned takes note of a machine that was given up and speaks again, and of one
// that speaks though it is declared gone.
func (s *step) returned(name string) {
	r := *s.base.Machines[name]
	d := s.machineSpec(name)
	changed := !r.LostSince.IsZero()
	if changed {
		s.event(schema.Event{Kind: schema.EventMachine, Machine: name, Message: "returned"})
		r.LostSince = time.Time{}
	}
	seen := !r.GoneSince.IsZero() && !r.GoneSince.After(s.now) // else for the first time, or the clock was set
	sure := r.GoneSince.Add(model.SilentAfter)                 // one that is up then has spoken meanwhile
	switch {
	case d.Gone == nil:
		changed = changed || r.Spoke || !r.GoneSince.IsZero()
		r.Spoke, r.GoneSince = false, time.Time{}
	case r.Spoke:
	case seen && s.now.Before(sure):
		s.wake(sure)
	case !seen || !s.in.Observed.LastHeard(name).After(r.GoneSince):
		r.GoneSince, changed = s.now, true
		s.wake(s.now.Add(model.SilentAfter))
	default:
		r.Spoke, changed = true, true
		s.event(schema.Event{Kind: schema.EventMachine, Machine: name, Message: "speaks, and is declared gone at " + d.Gone.Origin.String() + ": it is not"})
	}
	if changed {
		s.machines[name] = &r
	}
}

// forgetMachines removes machines that are to be forgotten, or are declared gone and
// have spoken no more, and hold nothing. Indices of system jobs go with their machines.
func (s *step) forgetMachines() {
	holds, homes := map[string]bool{}, map[string][]schema.TaskName{}
	gone := slices.DeleteFunc(slices.Sorted(maps.Keys(s.silent)), func(name string) bool { return !s.silent[name].dead() })
	if len(gone) == 0 {
		return
	}
	for _, key := range s.chunkNames() {
		for _, t := range s.chunk(key).Tasks {
			holds[t.Machine] = true
			if t.Machine == "" && t.On != "" {
				homes[t.On] = append(homes[t.On], key.Job.Task(t.Index))
			}
		}
	}
	for _, name := range gone {
		if holds[name] {
			continue
		}
		s.machines[name] = nil
		for _, home := range homes[name] {
			if r := s.job(home.JobName); r.Admitted != "" && s.dataOf(r.Admitted).Kind == schema.System {
				s.remove(home.JobName, home.Index)
			}
		}
		if q := s.silent[name]; q.record.Forgotten == nil { // else it was told when it began
			s.event(schema.Event{Kind: schema.EventMachine, Machine: name, Message: "forgotten: " + s.whyLost(q)})
		}
	}
}
