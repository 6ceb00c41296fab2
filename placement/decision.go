package placement

import (
	"fmt"
	"strings"
	"time"

	"github.com/musterhq/muster/schema"
)

// Reason says why machines cannot take an ask, as it is said of several: "lack CPU".
type Reason string

// The reasons. A machine has one: the first that holds, in this order.
const (
	ReasonDown       Reason = "are down"
	ReasonDraining   Reason = "are draining"
	ReasonCordoned   Reason = "are cordoned"
	ReasonReadOnlyFS Reason = "have condition " + Reason(schema.ReadOnlyFS)
	ReasonRuntime    Reason = "have condition " + Reason(schema.BrokenRuntime)
	ReasonDiskFull   Reason = "have condition " + Reason(schema.DiskPressure)
	ReasonMemoryFull Reason = "have condition " + Reason(schema.MemoryPressure)
	ReasonClock      Reason = "have condition " + Reason(schema.ClockSkew)
	ReasonCondition  Reason = "have a condition that this version does not know"
	ReasonOther      Reason = "are reserved for other tasks of the job"
	ReasonAvoided    Reason = "are avoided after a failure or eviction there"
	ReasonTaint      Reason = "have a taint that is not tolerated" // answers say which
	ReasonConstraint Reason = "fail a constraint"
	ReasonAnyOf      Reason = "fail all alternatives of anyOf" // answers say which constraints
	ReasonNoDevice   Reason = "lack the device"
	ReasonNoAlloc    Reason = "have no alloc of the set"
	ReasonShare      Reason = "have an alloc that holds its share of the job"
	ReasonDomain     Reason = "are at spread.max of the job"
	ReasonSkew       Reason = "are at spread.maxSkew of the job" // answers say over what
	// Of these three, answers say which task: see Affinity.
	ReasonAffinity     Reason = "lack a task that affinity requires"
	ReasonAntiAffinity Reason = "have a task that anti-affinity excludes"
	ReasonRepelled     Reason = "have a task whose anti-affinity excludes this one"

	ReasonHeld      Reason = "are held for a task that is ahead in the queue" // answers say for which, if these are few
	ReasonCPU       Reason = "lack CPU"
	ReasonRAM       Reason = "lack memory"
	ReasonDisk      Reason = "lack disk"
	ReasonPorts     Reason = "have no free port"
	ReasonPortTaken Reason = "have the requested port in use"
	ReasonDevices   Reason = "lack free devices"
)

// The reasons why a step of a plan does not hold any more, beside those above.
const (
	ReasonGone     Reason = "are gone"
	ReasonVictims  Reason = "hold other tasks than the planned victims"
	ReasonNeedless Reason = "have room without eviction"
	ReasonSpread   Reason = "have more tasks of the job in their domain than the plan relied on"
	ReasonStays    Reason = "have been chosen for a task that the plan does not evict any more"
	ReasonGroup    Reason = "have room, but not all of the group's machines do"
)

// One says r of one machine: "lacks CPU".
func (r Reason) One() string {
	verb, rest, _ := strings.Cut(string(r), " ")
	switch verb {
	case "are":
		verb = "is"
	case "have":
		verb = "has"
	default:
		verb += "s"
	}
	return verb + " " + rest
}

// Of says r of n machines: "1 lacks CPU", "3 lack CPU".
func (r Reason) Of(n int) string {
	if n == 1 {
		return "1 " + r.One()
	}
	return fmt.Sprintf("%d %s", n, r)
}

// Decision is the answer to one ask. Machine is "" when the task stays pending;
// Why then says the reason for each machine.
type Decision struct {
	Name    schema.TaskName
	Machine string
	Ports   schema.Ports
	Devices []DeviceUse
	// Alloc is the alloc in which the task runs, if it asked for a set.
	Alloc schema.TaskName
	// Victims have to stop on Machine before the task can start. Each of
	// them that is known with its Ask has a later Decision of its own.
	Victims []Victim
	// Overruns is how many tasks go with Victims beyond the budgets of their jobs, see SetBudgets, of
	// an ask for any machine: where it is not 0 no eviction was found that keeps them all.
	Overruns int
	// Later is true when the ask is not placed yet: it has a claim on the room
	// that Victims leave, see Options.Graceful and Snapshot.Claim.
	Later bool
	// Behind names what Machine is held for, when that is another ask and the task got it only since it
	// is evicted when that has room; "" else. See Task.Behind.
	Behind string
	// Evicted is true when the ask is that of a victim of this pass.
	Evicted bool
	// RoomUntil is until when Why.Room stays as it is, if nothing else happens; zero if it does
	// for ever.
	RoomUntil time.Time
	Why       Why
}

// Victim is a task that is evicted for one of higher priority.
type Victim struct {
	Name       schema.TaskName
	Generation uint64
	Priority   schema.Priority
}

// Why explains a decision. For a task that stays pending the counts of the
// refused machines and of the feasible ones (none) sum to Machines. For a task
// that was placed, Examined machines were checked, of which Feasible had
// room, and nothing is counted of the others.
type Why struct {
	// Allocs is the set, such as "u/web", of whose allocs Machines and all counts are, instead of
	// machines; "" for a task that asks for none, or for one that has no allocs.
	Allocs   string        `json:"allocs,omitempty"`
	Machines int           `json:"machines"`
	Examined int           `json:"examined,omitempty"`
	Feasible int           `json:"feasible"`
	Refused  []ReasonCount `json:"refused,omitempty"` // most first
	// Beyond is what the ask wants more of than any machine has, in whatever state.
	Beyond schema.Resources `json:"beyond,omitzero"`
	// Protected is how many tasks, of priorities that it may preempt, are in the way and may not be
	// preempted: see SetProtected.
	Protected int `json:"protected,omitempty"`
	// Change is the smallest change of the ask with which it would fit; nil
	// if there is none.
	Change *Change `json:"change,omitempty"`
	// Held is the machine that is held for the task, which stays pending and
	// has waited long: nothing of its priority or lower is put there in this
	// pass that would be in its way, see Ask.Held. "" for none.
	Held string `json:"held,omitempty"`
	// Holds are the machines that are held for all tasks that go together with it, sorted by
	// name; nil for a task alone.
	Holds []string `json:"holds,omitempty"`
	// Room is when room is expected there, zero if that is not known. HeldSince is since when
	// it has been held, for the caller to say.
	Room      time.Time `json:"room,omitzero"`
	HeldSince time.Time `json:"heldSince,omitzero"`
	// Waits says what the task waits for that no machine decides, and for which
	// it was not decided; "" for nothing.
	Waits string `json:"waits,omitempty"`
	// Places is how many tasks of the job have places or would get one, of Together that
	// have to, see Ask.Together. Refused is then about the task itself, or, if it would get one,
	// about the task Of that would get none, such as "u/web/0". Alone is true where that one would
	// have room if it were not for the others.
	Places   int    `json:"places,omitempty"`
	Together int    `json:"together,omitempty"`
	Of       string `json:"of,omitempty"`
	Alone    bool   `json:"alone,omitempty"`
	// TooMany is said where so many tasks of a job that have no place have to go together that there is not
	// enough room for them even if the cell is empty; nil where there is, or none of them has room.
	TooMany *TooMany `json:"tooMany,omitempty"`
	// Gang is the gang of the job, "" for none: Places and Together are then of all its jobs,
	// and Lacks those that would have too few.
	Gang  string     `json:"gang,omitempty"`
	Lacks []GangLack `json:"lacks,omitempty"`
	// Score says why Machine was the best, and RunnerUp the second best.
	Score    *Score `json:"score,omitempty"`
	RunnerUp *Score `json:"runnerUp,omitempty"`
}

// String says it in words, such as "0 of 3 machines fit: 2 lack memory, 1
// is down; with 1 KiB memory less, 2 would fit".
func (w Why) String() string {
	if w.Waits != "" {
		return w.Waits
	}
	if w.Together > 0 {
		gang, of := fmt.Sprintf("gang: %d of %d places", w.Places, w.Together), "job"
		if w.Gang != "" {
			gang, of = w.ofGang(), "gang"
		}
		if w.TooMany != nil {
			gang += fmt.Sprintf("; this cell has room for %d of %d tasks of %s, even if empty", w.TooMany.Room, w.TooMany.Tasks, w.TooMany.Job)
		}
		if w.Places, w.Together = 0, 0; len(w.Refused) == 0 {
			return gang + "; other tasks of the " + of + " have none yet"
		}
		return gang + "; " + w.beside() + w.String()
	}
	parts := make([]string, 0, len(w.Refused))
	for _, r := range w.Refused {
		parts = append(parts, r.Reason.Of(r.Machines))
	}
	s := schema.Part(w.Feasible, w.Machines, "machine", "fits", "fit")
	if w.Allocs != "" {
		s = fmt.Sprintf("%d of %s of %s %s", w.Feasible, schema.Count(w.Machines, "alloc"), w.Allocs, schema.Verb(w.Machines, "fits", "fit"))
	}
	if len(parts) > 0 {
		s += ": " + strings.Join(parts, ", ")
	}
	if w.Beyond != (schema.Resources{}) {
		list := amounts(w.Beyond)
		s += fmt.Sprintf("; %s %s more than any machine has", strings.Join(list, " and "), schema.Verb(len(list), "is", "are"))
	}
	if w.Protected > 0 {
		s += "; " + schema.Count(w.Protected, "task") + " of lower priority may not be preempted"
	}
	if w.Change != nil {
		s += "; " + w.Change.String()
	}
	if w.Held != "" {
		s += "; " + w.holding()
	}
	return s
}

// ofGang says what of a gang would get no place: "gang train: 6 of 10 places, waits for 3 of job
// b and 1 of job a".
func (w Why) ofGang() string {
	s := fmt.Sprintf("gang %s: %d of %d places", w.Gang, w.Places, w.Together)
	for i, l := range w.Lacks {
		word := ", waits for"
		if i > 0 {
			word = " and"
		}
		s += fmt.Sprintf("%s %d of job %s", word, l.Tasks, l.Job)
	}
	return s
}

// beside says which task of a gang the machines have no room for: "for u/web/0 ".
func (w Why) beside() string {
	switch {
	case w.Alone && w.Of == "":
		return "it would fit alone, but beside the others "
	case w.Alone:
		return "each task would fit alone, but beside the others for " + w.Of + " "
	case w.Of == "":
		return "for this task "
	}
	return "for " + w.Of + " "
}

// GangLack is a job of a gang, and how many places it would have too few.
type GangLack struct {
	Job   string `json:"job"`
	Tasks int    `json:"tasks"`
}

// TooMany is for how many of some tasks of a job, such as "u/web", an empty cell has room, at most.
type TooMany struct {
	Job   string `json:"job"`
	Tasks int    `json:"tasks"`
	Room  int    `json:"room"`
}

// namedMachines is how many of the machines that are held are named.
const namedMachines = 8

// holding says which machine is held, since when, and when room is expected there: "holds
// m7 since 12:04, room expected by 12:20".
func (w Why) holding() string {
	format := "15:04"
	if !w.Room.IsZero() && !w.HeldSince.IsZero() && w.Room.Sub(w.HeldSince) > 12*time.Hour {
		format = "2006-01-02 15:04"
	}
	s, have := "holds "+w.Held, "it has"
	if n := len(w.Holds); n > 1 {
		s, have = "holds "+strings.Join(w.Holds[:min(n, namedMachines)], ", "), "they have"
		if n > namedMachines {
			s += fmt.Sprintf(" and %d more", n-namedMachines)
		}
	}
	if !w.HeldSince.IsZero() {
		s += " since " + w.HeldSince.UTC().Format(format)
	}
	if w.Room.IsZero() {
		return s + ", when " + have + " room is not known"
	}
	return s + ", room expected by " + w.Room.Add(time.Minute-1).UTC().Format(format)
}

// ReasonCount is the number of machines that refused for a reason.
type ReasonCount struct {
	Reason   Reason `json:"reason"`
	Machines int    `json:"machines"`
}

// Change is what would have to change of an ask so that it fits on Machines.
type Change struct {
	// Less is what the ask would have to give up of its limit.
	Less schema.Resources `json:"less,omitzero"`
	// Without is the one requirement that would have to go, in words: a
	// constraint, a bound per domain, a port, a device.
	Without  string `json:"without,omitempty"`
	Machines int    `json:"machines"`
}

// String says it in words, such as "with 512 MiB memory less, 12 would fit".
func (c Change) String() string {
	if c.Without != "" {
		return fmt.Sprintf("without %s, %d would fit", c.Without, c.Machines)
	}
	return fmt.Sprintf("with %s less, %d would fit", strings.Join(amounts(c.Less), " and "), c.Machines)
}

// amounts says resources in words: "2 CPU", "512 MiB memory".
func amounts(r schema.Resources) (parts []string) {
	if n := r.CPUMilli; n > 0 {
		parts = append(parts, schema.CPU(n)+" CPU")
	}
	if n := r.RAMBytes; n > 0 {
		parts = append(parts, schema.Bytes(n)+" memory")
	}
	if n := r.DiskBytes; n > 0 {
		parts = append(parts, schema.Bytes(n)+" disk")
	}
	return parts
}

// Score is what a machine was worth to an ask: the sum of its terms, weights
// included, the more the better. Of equal machines the first by name is taken.
type Score struct {
	Machine string  `json:"machine"`
	Total   float32 `json:"total"`
	Terms   Terms   `json:"terms"`
}

// Terms are the parts of a Score. Weights says what each means.
type Terms struct {
	Room     float32 `json:"room,omitzero"`
	Stranded float32 `json:"stranded,omitzero"`
	Shape    float32 `json:"shape,omitzero"`
	Tight    float32 `json:"tight,omitzero"`
	Open     float32 `json:"open,omitzero"`
	Headroom float32 `json:"headroom,omitzero"`
	Mix      float32 `json:"mix,omitzero"`
	Machine  float32 `json:"machine,omitzero"`
	Packages float32 `json:"packages,omitzero"`
	Noise    float32 `json:"noise,omitzero"`
	Wish     float32 `json:"wish,omitzero"`
	Devices  float32 `json:"devices,omitzero"`
	Affinity float32 `json:"affinity,omitzero"`
	// Fit is the only term of the policies other than Hybrid.
	Fit float32 `json:"fit,omitzero"`
}

// unmet is what an ask wishes and does not have there, with the sign turned.
func (t *Terms) unmet() float32 { return t.Packages + t.Wish + t.Devices + t.Affinity }

// Verdict is what one machine says to an ask: a Reason, or "" and its Score.
type Verdict struct {
	Machine string `json:"machine"`
	Reason  Reason `json:"reason,omitempty"`
	// Fails are the constraints that do not hold of the machine, as String of each has them,
	// in the order of the ask; nil unless they are the Reason.
	Fails []string `json:"fails,omitempty"`
	Score *Score   `json:"score,omitempty"`
}
