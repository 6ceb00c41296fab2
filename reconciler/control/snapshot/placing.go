package snapshot

import (
	"fmt"
	"strings"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/schema"
)

// Placing is what placement says of a task, as if it were to be placed now.
type Placing struct {
	// Score is that of the machine that the task is on, nil if it is on none
	// or would not get it again.
	Score *placement.Score `json:"score,omitempty"`
	// RunnerUp is the best of the other machines that have room. Among racks the
	// job is spread first, so it may score higher.
	RunnerUp *placement.Score `json:"runnerUp,omitempty"`
	// Brings is how many images and packages the task needs, and BringsWeight what it is
	// worth that a machine holds all of them; zero if it needs none.
	Brings       int     `json:"brings,omitempty"`
	BringsWeight float32 `json:"bringsWeight,omitempty"`
	// Verdict is that of the machine that was asked about.
	Verdict *MachineVerdict `json:"verdict,omitempty"`
}

// MachineVerdict is what one machine says to a task.
type MachineVerdict struct {
	placement.Verdict
	// Victims would have to stop for the task to get the machine, as
	// user/job/index; none if that would not help, or is not needed.
	Victims []string `json:"victims,omitempty"`
}

// PlacingOf asks placement about one task, and about a machine if that is not "";
// nil if the task wants no machine. reserved is what is held back for tasks, nil for their limits.
func PlacingOf(f *facts.Facts, reserved Reservations, task schema.TaskName, machine string, seed uint64) *Placing {
	c := New(f, nil)
	c.Reserve(reserved)
	want := c.facts.Admitted(task.JobName)
	if want == nil {
		return nil
	}
	t := c.facts.Task(task)
	if t != nil && t.Done != nil {
		return nil
	}
	a, _ := c.Placement(Ask{task, want, c.facts.Job(task.JobName).Admitted})
	a.Prefer, a.Last, a.Together, a.Gang, a.Returns = "", "", 0, nil, false
	snapshot := c.Snapshot()
	snapshot.Configure(placement.Options{Weights: c.weights()})
	if t != nil && t.Machine != "" {
		snapshot.RemoveTask(task, t.Machine, 0)
	}
	p := &Placing{Brings: len(a.Packages)}
	if p.Brings > 0 {
		p.BringsWeight = placement.DefaultWeights().Packages
	}
	best := placement.Place(snapshot, []placement.Ask{a}, seed)[0] // it also learns what scores depend on
	snapshot.RemoveTask(task, best.Machine, 0)
	if t != nil && t.Machine != "" {
		if v, ok := snapshot.Verdict(a, t.Machine); ok {
			p.Score = v.Score
		}
		for _, score := range []*placement.Score{best.Why.RunnerUp, best.Why.Score} {
			if score != nil && score.Machine != t.Machine {
				p.RunnerUp = score
			}
		}
	}
	if v, ok := snapshot.Verdict(a, machine); ok {
		p.Verdict = &MachineVerdict{Verdict: v}
		if v.Reason != "" {
			snapshot.SetBudgets(func(job schema.JobName) (int, bool) {
				left, bound, _ := c.facts.Spare(job)
				return left, bound
			})
			snapshot.SetHit(c.facts.Hit)
			p.Verdict.Victims = victimsOn(snapshot, a, machine, c.weights())
		}
	}
	return p
}

// victimsOn returns who would have to stop for an ask to get a machine.
func victimsOn(snapshot *placement.Snapshot, a placement.Ask, machine string, weights *placement.Weights) []string {
	if a.On != "" && a.On != machine {
		return nil
	}
	a.On = machine
	snapshot.Configure(placement.Options{Preempt: true, Weights: weights})
	d := placement.Place(snapshot, []placement.Ask{a}, 0)[0]
	var out []string
	for _, v := range d.Victims {
		out = append(out, v.Name.Short())
	}
	return out
}

// Lines returns it as text, line by line.
func (p *Placing) Lines() []string {
	var out []string
	if p.Score != nil {
		out = append(out, "score, if placed now (higher is better): "+scoreText(p.Score))
	}
	if p.RunnerUp != nil {
		out = append(out, "best other machine: "+scoreText(p.RunnerUp))
	}
	if p.Brings > 0 && (p.Score != nil || p.RunnerUp != nil) {
		what := "image or package"
		if p.Brings > 1 {
			what = fmt.Sprintf("%d images and packages", p.Brings)
		}
		out = append(out, fmt.Sprintf("packages: -%.3f times the share that the machine lacks of the %s that the task needs", p.BringsWeight, what))
	}
	if v := p.Verdict; v != nil {
		s := fmt.Sprintf("machine %s %s", v.Machine, v.Reason.One())
		if v.Reason == "" {
			s = "machine " + scoreText(v.Score) + " has room"
		}
		if len(v.Fails) > 0 {
			s += ": " + strings.Join(v.Fails, ", ")
		}
		if len(v.Victims) > 0 {
			s += "; it could take the place of " + strings.Join(v.Victims, ", ")
		}
		out = append(out, s)
	}
	return out
}

// scoreText says a score and its terms: "m1 0.0093 (shape 0.0098, mix -0.0005)".
func scoreText(s *placement.Score) string {
	var terms []string
	for _, t := range []struct {
		name  string
		value float32
	}{
		{"room", s.Terms.Room},
		{"stranded", s.Terms.Stranded},
		{"shape", s.Terms.Shape},
		{"tight", s.Terms.Tight},
		{"open", s.Terms.Open},
		{"headroom", s.Terms.Headroom},
		{"mix", s.Terms.Mix},
		{"machine", s.Terms.Machine},
		{"packages", s.Terms.Packages},
		{"noise", s.Terms.Noise},
		{"wish", s.Terms.Wish},
		{"devices", s.Terms.Devices},
		{"affinity", s.Terms.Affinity},
		{"fit", s.Terms.Fit},
	} {
		if t.value >= 0.00005 || t.value <= -0.00005 { // else it would be said as 0
			terms = append(terms, fmt.Sprintf("%s %.4f", t.name, t.value))
		}
	}
	text := fmt.Sprintf("%s %.4f", s.Machine, s.Total)
	if len(terms) > 0 {
		text += " (" + strings.Join(terms, ", ") + ")"
	}
	return text
}
