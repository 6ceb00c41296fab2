package reconciler

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/schema"
)

// lostShare is the largest share of the cell's machines that is given up at
// once, in percent: when more go silent together it is more likely that the
// master cannot hear than that they are gone. One machine always may be.
const lostShare = 30

// Join takes a machine that connects into the state, with an epoch of its own:
// messages of an older connection are refused from then on. The writes must be
// stored before the machine is welcomed.
func Join(s *State, info schema.MachineInfo, now time.Time) (epoch uint64, writes []Write, events []schema.Event) {
	r := &schema.MachineRecord{MachineInfo: info, Epoch: 1}
	message := "joined"
	if was := s.Machines[info.Name]; was != nil {
		r.Epoch = was.Epoch + 1
		switch {
		case was.Boot != info.Boot:
			message = "joined again after a restart of the machine"
		case !was.LostSince.IsZero():
			message = "returned"
		default:
			message = "joined again"
		}
	}
	e := schema.Event{At: now, Kind: schema.EventMachine, Machine: info.Name, Message: message}
	return r.Epoch, []Write{{keyMachine + info.Name, schema.Canonical(r)}}, []schema.Event{e}
}

// surveyMachines finds which machines may get tasks, and which are given up.
func (s *step) surveyMachines() {
	s.lost = map[string]bool{}
	var silent []string
	names := s.base.machineNames()
	for _, name := range names {
		health, until := s.in.Observed.health(name, s.now)
		if !until.IsZero() {
			s.wake(until)
		}
		switch health {
		case HealthUp:
			s.up = append(s.up, name)
			s.returned(name)
		case HealthLost:
			silent = append(silent, name)
		case HealthSilent:
		}
	}
	if len(silent) == 0 {
		return
	}
	if most := max(1, len(names)*lostShare/100); len(silent) > most || len(s.up) == 0 {
		s.out.Holding = fmt.Sprintf("%d of %d machines are silent: their tasks are left where they are, since more than %d at once is likely a fault of the network", len(silent), len(names), most)
		if len(s.up) == 0 {
			s.out.Holding = fmt.Sprintf("%d of %d machines are silent and none is up: their tasks are left where they are", len(silent), len(names))
		}
		return
	}
	for _, name := range silent {
		s.lost[name] = true
		if r := *s.base.Machines[name]; r.LostSince.IsZero() {
			r.LostSince = s.now
			s.machines[name] = &r
			s.event(schema.Event{Kind: schema.EventMachine, Machine: name, Message: "lost: silent for " + lostAfter.String()})
		}
	}
}

// returned takes note of a machine that was given up and speaks again on the
// connection it had.
func (s *step) returned(name string) {
	if r := *s.base.Machines[name]; !r.LostSince.IsZero() {
		r.LostSince = time.Time{}
		s.machines[name] = &r
		s.event(schema.Event{Kind: schema.EventMachine, Machine: name, Message: "returned"})
	}
}
