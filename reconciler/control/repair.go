package control

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// Where a job has come to be spread worse than it could be, as when a rack was lost
// and has returned, a running task is moved: one of a job at a time, within its
// disruption budget, where a machine has room on which it is better. How long that
// has been so follows from what is stored: since when its tasks are where they are,
// and the machine is there.

const (
	// unevenFor is for how long tasks must have been where they are, and a machine
	// there, before one is moved.
	unevenFor = 5 * time.Minute
	// unevenNext is for how long a task must have been where it was moved before
	// the next one is.
	unevenNext = time.Minute
	// movedInVain is for how long a task is left that was moved, and was placed
	// where it was no better, since others took the room.
	movedInVain = time.Hour
	// A job is looked at every so often, and then for so long: what can change the
	// answer is all over the cell.
	repairEvery = time.Minute
	repairLooks = 2 * time.Second
	// repairShare is how many tasks of the cell are moved at once, in percent of its
	// machines. One always may be.
	repairShare = 5
)

// repairAll looks at the jobs whose turn it is.
func (s *step) repairAll() {
	if len(s.up) < 2 {
		return
	}
	for _, name := range s.active {
		if s.waking = name; s.job(name) != nil {
			s.repair(name)
		}
	}
	s.waking = schema.JobName{}
}

// repair moves a task of a job to where it is better for its spread.
func (s *step) repair(name schema.JobName) {
	want := s.dataOf(s.job(name).Admitted)
	if want == nil || !mayBeUneven(want) || want.Tasks < 2 || neverMoved(want) != "" {
		return
	}
	began := lookedAt(name, s.now)
	if !s.now.Before(began.Add(repairLooks)) {
		s.wake(began.Add(repairEvery))
		return
	}
	s.wake(began.Add(repairLooks))
	s.asking[name] = true // it is not idle
	u, ok := s.uneven(name, want)
	if !ok || s.repairWaits(name, &u) != "" {
		return
	}
	if s.rebalance(name, *s.recordOf(name.Task(u.index)), u.String()) == "" {
		s.rebalancing++
	}
}

// mayBeUneven reports whether the tasks of a job are spread. Those in allocs are
// where these are.
func mayBeUneven(want *schema.Job) bool {
	return want.Kind == schema.Service && want.AllocSet == "" && (want.Spread == nil || want.Spread.By != schema.NoSpread)
}

// neverMoved says why no task of a job is moved for its spread, "" if some may be.
func neverMoved(want *schema.Job) string {
	switch {
	case want.Spread != nil && want.Spread.Repair != nil && !*want.Spread.Repair:
		return "spread.repair is false"
	case want.Task.Sticky.Has():
		return "they are sticky"
	case want.NeverTwice():
		return "they must never run twice"
	}
	return ""
}

// lookedAt returns when a job was last to be looked at: at a time within the minute
// that differs from job to job.
func lookedAt(name schema.JobName, now time.Time) time.Time {
	h := fnv.New32a()
	h.Write([]byte(name.String())) // never fails
	offset := time.Duration(h.Sum32()%uint32(repairEvery/time.Second)) * time.Second
	return now.Add(-offset).Truncate(repairEvery).Add(offset)
}

// unevenTask is a task that would be better elsewhere for the spread of its job.
type unevenTask struct {
	placement.Uneven
	index  int
	placed int // tasks of the job that have a place
}

// String says what is wrong: "3 of 4 tasks are on rack r3; rack r1 has none, and room".
func (u *unevenTask) String() string {
	has := "none"
	if u.ToTasks > 0 {
		has = fmt.Sprint(u.ToTasks)
	}
	return fmt.Sprintf("%s on %s; %s has %s, and room", schema.Part(u.FromTasks, u.placed, "task", "is", "are"), u.value(u.From), u.value(u.To), has)
}

func (u *unevenTask) value(v string) string {
	if v == "" {
		return "machines without " + u.Attribute
	}
	return u.Attribute + " " + v
}

// crowding counts the tasks of a job that stay, by domain and by machine, as far as
// these are up.
type crowding struct {
	tasks               []schema.TaskRecord
	domain              map[string]string // by machine
	inDomain, onMachine map[string]int
}

func (s *step) crowdingOf(name schema.JobName, want *schema.Job) crowding {
	c := crowding{domain: map[string]string{}, inDomain: map[string]int{}, onMachine: map[string]int{}}
	for _, t := range s.tasks(name) {
		if t.Machine == "" || t.Stop != nil || !s.isUp(t.Machine) {
			continue
		}
		c.tasks = append(c.tasks, t)
		c.domain[t.Machine] = s.domainOf(t.Machine, spreadBy(want))
		c.inDomain[c.domain[t.Machine]]++
		c.onMachine[t.Machine]++
	}
	return c
}

// spreadBy returns the attribute over which a job is spread.
func spreadBy(want *schema.Job) string {
	if want.Spread == nil || want.Spread.By == "" {
		return placement.DefaultSpread
	}
	return want.Spread.By
}

func (s *step) domainOf(machine, attribute string) string {
	if attribute == schema.AttributeMachine {
		return machine
	}
	return s.machineSpec(machine).Attributes[attribute]
}

// domains returns the values of an attribute that machines have which are up.
func (s *step) domains(attribute string) map[string]bool {
	if s.domainsUp == nil {
		s.domainsUp = map[string]map[string]bool{}
	}
	out := s.domainsUp[attribute]
	if out == nil {
		out = map[string]bool{}
		for _, m := range s.up {
			out[s.domainOf(m, attribute)] = true
		}
		s.domainsUp[attribute] = out
	}
	return out
}

// uneven finds a task that would be better elsewhere: one of where most are. Most
// jobs are seen to have none without asking placement.
func (s *step) uneven(name schema.JobName, want *schema.Job) (unevenTask, bool) {
	c := s.crowdingOf(name, want)
	most, fewest := 0, len(c.tasks)
	for domain := range s.domains(spreadBy(want)) {
		most, fewest = max(most, c.inDomain[domain]), min(fewest, c.inDomain[domain])
	}
	crowded := slices.MaxFunc(append(slices.Collect(maps.Values(c.onMachine)), 0), cmp.Compare[int])
	if most-fewest < 2 && crowded < 2 {
		return unevenTask{}, false
	}
	byDomain := slices.MaxFunc(c.tasks, func(a, b schema.TaskRecord) int {
		return cmp.Or(cmp.Compare(c.inDomain[c.domain[a.Machine]], c.inDomain[c.domain[b.Machine]]), cmp.Compare(c.onMachine[a.Machine], c.onMachine[b.Machine]), cmp.Compare(a.Index, b.Index))
	})
	byMachine := slices.MaxFunc(c.tasks, func(a, b schema.TaskRecord) int {
		return cmp.Or(cmp.Compare(c.onMachine[a.Machine], c.onMachine[b.Machine]), cmp.Compare(a.Index, b.Index))
	})
	for i, t := range []schema.TaskRecord{byDomain, byMachine} {
		if i > 0 && t.Machine == byDomain.Machine {
			break
		}
		if u, ok := s.betterFor(name, want, &t); ok {
			return unevenTask{u, t.Index, len(c.tasks)}, true
		}
	}
	return unevenTask{}, false
}

// betterFor asks placement where a task would be better: on a machine that has been
// there for long enough if there is one, else on any.
func (s *step) betterFor(name schema.JobName, want *schema.Job, t *schema.TaskRecord) (placement.Uneven, bool) {
	task := name.Task(t.Index)
	a := s.placementAsk(ask{task, want, s.job(name).Admitted})
	fork := s.without(victim{task, t.Machine})
	defer fork.Release()
	recent := s.joinedRecently()
	if len(recent) == 0 {
		return fork.Uneven(a, t.Machine)
	}
	settled := a
	settled.Avoid = slices.Concat(a.Avoid, recent)
	if u, ok := fork.Uneven(settled, t.Machine); ok {
		return u, true
	}
	return fork.Uneven(a, t.Machine)
}

// joinedRecently returns the machines that have not been there for long enough to have
// a running task moved to them.
func (s *step) joinedRecently() []string {
	var out []string
	for _, name := range s.up {
		if m := s.base.Machines[name]; m != nil && Ahead(s.now, m.Joined.Add(unevenFor), unevenFor) {
			out = append(out, name)
		}
	}
	return out
}

// repairWaits says what a task waits for that would be better elsewhere, "" if it
// may move now.
func (s *step) repairWaits(name schema.JobName, u *unevenTask) string {
	r := s.job(name)
	t := s.recordOf(name.Task(u.index))
	switch {
	case s.frozen(name):
		return "the job is " + s.suspended.Of(name).String()
	case r.Rollout != nil || len(s.asked[name]) > 0:
		return "a rollout is not complete"
	case len(s.out.Holding) > 0:
		return s.out.Holding[0].Reason
	}
	for machine, d := range s.out.Draining {
		if d.Left > 0 {
			return fmt.Sprintf("machine %s is being drained", machine)
		}
	}
	if why := s.stillMoves(name, r); why != "" {
		return why
	}
	if recent := s.joinedRecently(); slices.Contains(recent, u.Machine) {
		for _, name := range recent { // another may do as well
			s.waits(s.base.Machines[name].Joined.Add(unevenFor), unevenFor)
		}
		return fmt.Sprintf("machine %s joined recently: until %s", u.Machine, s.base.Machines[u.Machine].Joined.Add(unevenFor).UTC().Format(time.TimeOnly))
	}
	if most := max(1, len(s.names)*repairShare/100); s.rebalancing >= most {
		return "tasks of other jobs move first"
	}
	return s.disruptionBlocked(name, t)
}

// stillMoves says which task of a job is not, or not for long enough, where it is.
func (s *step) stillMoves(name schema.JobName, r *schema.JobRecord) string {
	want := s.dataOf(r.Admitted)
	tasks := s.tasks(name)
	if len(tasks) != want.Tasks {
		return "not all of its tasks are placed"
	}
	var why string
	var last time.Time // of those that moved of late, when the youngest has stayed for long enough
	for i := range tasks {
		t := &tasks[i]
		short := name.Task(t.Index).Short()
		switch {
		case t.Machine == "":
			return short + " has no machine"
		case t.Stop != nil:
			return short + " is stopping"
		case !s.isUp(t.Machine):
			return fmt.Sprintf("machine %s is silent", t.Machine)
		case t.Data != r.Admitted:
			return "a rollout is not complete"
		}
		stays := unevenFor
		if n := len(t.Causes); n > 0 && t.Causes[n-1].Kind == schema.CauseRebalance {
			if stays = unevenNext; s.inVain(t.Causes[n-1].Machine, t.Machine, spreadBy(want)) {
				stays = movedInVain
			}
		}
		if until := t.At.Add(stays); until.After(last) && s.waits(until, stays) {
			last, why = until, fmt.Sprintf("%s was placed less than %d min ago: until %s", short, int(stays.Minutes()), until.UTC().Format(time.TimeOnly))
		}
	}
	return why
}

// inVain reports whether a task that was moved from one machine to another is no
// better spread there.
func (s *step) inVain(from, to, attribute string) bool {
	if from == to || s.base.Machines[from] == nil {
		return from == to
	}
	return len(s.domains(attribute)) > 1 && s.domainOf(from, attribute) == s.domainOf(to, attribute)
}

// Spread says what is wrong with how a job is spread and what becomes of that, ""
// if nothing is.
func (f *Facts) Spread(name schema.JobName) string {
	r := f.in.State.Jobs[name]
	if r == nil || f.in.State.Data[r.Admitted] == nil || !mayBeUneven(f.in.State.Data[r.Admitted]) {
		return ""
	}
	want := f.in.State.Data[r.Admitted]
	s := f.surveyed()
	s.out.Holding, s.out.Draining = f.last.Holding, f.last.Draining
	u, ok := s.uneven(name, want)
	if !ok {
		return ""
	}
	text := u.String()
	if why := neverMoved(want); why != "" {
		return text + "; its tasks are not moved for that: " + why
	}
	task := name.Task(u.index).Short()
	if why := s.repairWaits(name, &u); why != "" {
		return fmt.Sprintf("%s; %s is to move there, and waits: %s", text, task, why)
	}
	return fmt.Sprintf("%s; %s is to move there at %s", text, task, lookedAt(name, f.in.Now).Add(repairEvery).UTC().Format(time.TimeOnly))
}
