package control

import (
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/control/draft"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// atOnce is how far apart machines may be given up and still count as gone
// together.
const atOnce = 10 * time.Minute

// Behind errs with a *schema.BehindError when a machine that connects was sent
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
	e := schema.Event{At: now, Kind: schema.EventMachine, Machine: info.Name, Message: "joined", Input: &schema.EventInput{Join: &schema.EventJoin{}}}
	was := s.Machines[info.Name]
	if was != nil {
		r.Epoch = max(was.Epoch, s.Floor()) + 1
		r.LostSince = was.LostSince // until its first report, see returned
		r.Subnets, r.Leaving = was.Subnets, was.Leaving
		e.Message = "joined again"
		if was.Boot != info.Boot {
			e.Message, e.Input.Join.Reboot = "joined again after a reboot", true
		}
	}
	if was == nil || !sameOffer(was.MachineInfo, info) {
		offers := info
		e.Input.Join.Offers = &offers
	}
	d := desired.DeclaredOf(&info)
	r.Spoke = d.Gone != nil
	return r.Epoch, []model.Write{s.Document(model.KeyMachine+info.Name, r)}, []schema.Event{e}
}

// sameOffer reports whether a machine offers what it did, in whichever boot. The documents
// are compared: two that are stored alike are alike.
func sameOffer(was, is schema.MachineInfo) bool {
	was.Boot, is.Boot = "", ""
	return schema.DigestOf(was) == schema.DigestOf(is)
}

// machines takes down what becomes of machines.
type machines struct{ pass }

// setMachinesRight has the records of machines stored without a time of their loss that
// a clock wrote down which was ahead. The facts of a step are those of records that are
// right.
func setMachinesRight(d *draft.Draft, s *model.State, returning []string, now time.Time) {
	for _, name := range returning {
		if was := s.Machines[name]; was.LostSince.After(now) {
			r := *was
			r.LostSince = now
			d.SetMachine(name, &r)
		}
	}
}

// giveUp takes down that a machine is lost.
func (s machines) giveUp(q *facts.Silent) {
	r := *s.Machine(q.Name)
	r.LostSince = s.Now
	s.SetMachine(q.Name, &r)
	if r.Forgotten != nil {
		return // which has its event
	}
	loss := schema.EventLoss{}
	if q.Gone == nil {
		loss.SilentSeconds = s.Observed.LostAfter.Seconds()
	}
	s.Event(schema.Event{Kind: schema.EventMachine, Machine: q.Name, Message: "lost: " + s.WhyLost(q), Input: &schema.EventInput{Lost: &loss}})
}

// returned takes note of a machine that was given up and speaks again, and of one
// that speaks though it is declared gone.
func (s machines) returned(name string) {
	d, was := s.MachineSpec(name), s.Machine(name)
	if d.Gone == nil && was.LostSince.IsZero() && !was.Spoke && was.GoneSince.IsZero() {
		return
	}
	r := *was
	changed := !r.LostSince.IsZero()
	if changed {
		s.Event(schema.Event{Kind: schema.EventMachine, Machine: name, Message: "returned", Input: &schema.EventInput{Returned: true}})
		r.LostSince = time.Time{}
	}
	seen := !r.GoneSince.IsZero() && !r.GoneSince.After(s.Now) // else for the first time, or the clock was set
	sure := r.GoneSince.Add(model.SilentAfter)                 // one that is up then has spoken meanwhile
	switch {
	case d.Gone == nil:
		changed = changed || r.Spoke || !r.GoneSince.IsZero()
		r.Spoke, r.GoneSince = false, time.Time{}
	case r.Spoke:
	case seen && s.Now.Before(sure):
		s.bookCell(s.At(sure))
	case !seen || !s.Observed.LastSeen(name).After(r.GoneSince):
		r.GoneSince, changed = s.Now, true
		s.bookCell(s.In(model.SilentAfter))
	default:
		r.Spoke, changed = true, true
		s.Event(schema.Event{Kind: schema.EventMachine, Machine: name, Message: "speaks, and is declared gone at " + d.Gone.Origin.String() + ": it is not"})
	}
	if changed {
		s.SetMachine(name, &r)
	}
}

// forgetMachines removes machines that are to be forgotten, or are declared gone and
// have spoken no more, and hold nothing. Indices of system jobs go with their machines.
func (s machines) forgetMachines() {
	holds, homes := map[string]bool{}, map[string][]schema.TaskName{}
	gone := slices.DeleteFunc(slices.Sorted(maps.Keys(s.SilentMachines())), func(name string) bool { return !s.SilentMachines()[name].Dead() })
	if len(gone) == 0 {
		return
	}
	for _, key := range s.ChunkNames() {
		for _, t := range s.Chunk(key).Tasks {
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
		s.SetMachine(name, nil)
		s.another() // what the cell has is less, by which jobs are admitted
		for _, home := range homes[name] {
			if r := s.Job(home.JobName); r.Admitted != "" && s.Data(r.Admitted).Kind == schema.System {
				s.Remove(home.JobName, home.Index)
			}
		}
		if q := s.SilentMachines()[name]; q.Forgotten == nil { // else there was an event when it began
			s.Event(schema.Event{Kind: schema.EventMachine, Machine: name, Message: "forgotten: " + s.WhyLost(q)})
		}
	}
}
