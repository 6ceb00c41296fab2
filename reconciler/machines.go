package reconciler

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// lostShare is the largest share of the cell's machines that is given up at
// once, in percent: when more go silent together it is more likely that the
// master cannot hear than that they are gone. One machine always may be.
const lostShare = 30

// atOnce is how far apart machines may be given up and still count as gone
// together.
const atOnce = 10 * time.Minute

// Join takes a machine that connects into the state, with an epoch of its own:
// messages of an older connection are refused from then on. The writes must be
// stored before the machine is welcomed.
func Join(s *State, info schema.MachineInfo, now time.Time) (epoch uint64, writes []Write, events []schema.Event) {
	r := &schema.MachineRecord{MachineInfo: info, Epoch: 1}
	message := "joined"
	if was := s.Machines[info.Name]; was != nil {
		r.Epoch = was.Epoch + 1
		r.LostSince = was.LostSince // until its first report, see returned
		message = "joined again"
		if was.Boot != info.Boot {
			message = "joined again after a restart of the machine"
		}
	}
	e := schema.Event{At: now, Kind: schema.EventMachine, Machine: info.Name, Message: message}
	return r.Epoch, []Write{s.document(keyMachine+info.Name, r)}, []schema.Event{e}
}

// neverJoined warns of a machine that is declared and unknown to the cell.
func (m DesiredMachine) neverJoined() schema.Diagnostic {
	key := schema.ObjectKey{Kind: schema.KindMachine, Name: m.Cell + "/" + m.Name}
	return schema.Diagnostic{
		Severity: schema.Warning, Position: m.Origin, Field: key.Field(), Message: "no machine of this name has ever joined",
		Hint: "start its agent, or correct the name",
	}
}

// survey is how many of the cell's machines are how.
type survey struct {
	all     int      // that were not given up long ago
	down    int      // of them: silent, or given up of late
	overdue []string // to be given up
}

// surveyMachines finds which machines may get tasks, and which are given up.
func (s *step) surveyMachines() {
	s.lost = map[string]bool{}
	var v survey
	for _, name := range s.names {
		s.look(name, &v)
	}
	if len(v.overdue) == 0 {
		return
	}
	switch most := max(1, v.all*lostShare/100); {
	case len(s.up) == 0:
		s.out.Holding = fmt.Sprintf("%d of %d machines are silent and none is up: their tasks are left where they are", v.down, v.all)
	case v.down > most:
		s.out.Holding = fmt.Sprintf("%d of %d machines are silent: their tasks are left where they are, since more than %d at once is likely a fault of the network", v.down, v.all, most)
	default:
		for _, name := range v.overdue {
			s.giveUp(name)
		}
	}
}

// look takes one machine into the survey.
func (s *step) look(name string, v *survey) {
	r := s.base.Machines[name]
	health, until := s.in.Observed.health(name, s.now)
	if !until.IsZero() {
		s.wake(until)
	}
	if health == HealthUp {
		v.all++
		s.up = append(s.up, name)
		s.returned(name)
		return
	}
	if r.LostSince.IsZero() {
		v.all++
		v.down++
		if health == HealthLost {
			v.overdue = append(v.overdue, name)
		}
		return
	}
	// It was given up before; a crash may have come between that and its tasks.
	s.lost[name] = health == HealthLost
	if late := r.LostSince.Add(atOnce); s.now.Before(late) {
		s.wake(late)
		v.all++
		v.down++
	}
}

// giveUp takes down that a machine is lost.
func (s *step) giveUp(name string) {
	r := *s.base.Machines[name]
	r.LostSince = s.now
	s.machines[name] = &r
	s.lost[name] = true
	s.event(schema.Event{Kind: schema.EventMachine, Machine: name, Message: "lost: silent for " + lostAfter.String()})
}

// isUp reports whether a machine may get tasks.
func (s *step) isUp(name string) bool {
	_, ok := slices.BinarySearch(s.up, name)
	return ok
}

// returned takes note of a machine that was given up and speaks again.
func (s *step) returned(name string) {
	if r := *s.base.Machines[name]; !r.LostSince.IsZero() {
		r.LostSince = time.Time{}
		s.machines[name] = &r
		s.event(schema.Event{Kind: schema.EventMachine, Machine: name, Message: "returned"})
	}
}
