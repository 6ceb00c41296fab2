package quota

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Input is what admission depends on.
type Input struct {
	Desired intent.Desired
	// Admitted is the data that each job runs now.
	Admitted map[schema.JobName]*schema.Job
	// Records say where that is declared; nil, or none of a job, if it is where it is desired.
	Records map[schema.JobName]*schema.JobRecord
	// state has what Admitted would, where it is not gathered; nil for none.
	state *model.State
	// Size is that of the cell; nil if unknown, as it is offline and before the
	// first machine joins.
	Size *CellSize
	// Now decides which quotas count.
	Now time.Time
}

// CellSize is what all the machines are together that ever joined the cell,
// reachable or not.
type CellSize struct {
	Capacity schema.Resources
	// Machines is how many there are: the tasks that a system job is counted
	// with, eligible machines or not, so that a change of labels changes nobody's
	// quota. Where the size is unknown a system job counts with one.
	Machines int
}

// counted returns the input with the number of tasks that each job counts with.
func (in Input) counted() Input {
	jobs := make(map[schema.JobName]intent.DesiredJob, len(in.Desired.Jobs))
	for name, d := range in.Desired.Jobs {
		d.Job = in.count(d.Job.With(d.Count))
		jobs[name] = d
	}
	admitted := make(map[schema.JobName]*schema.Job, len(in.Admitted))
	for name, j := range in.Admitted {
		admitted[name] = in.count(j)
	}
	in.Desired.Jobs, in.Admitted = jobs, admitted
	return in
}

// count returns a job with the number of tasks that it counts with: that which an overlay says,
// which j has, and of a system job that of machines.
func (in Input) count(j *schema.Job) *schema.Job {
	if j.Kind != schema.System {
		return j
	}
	c := *j
	c.Tasks = 1
	if in.Size != nil {
		c.Tasks = min(in.Size.Machines, schema.MaxTasks)
	}
	return &c
}

// Admission is the verdict on each desired job.
type Admission struct {
	// Rejected says why a job's desired data is not admitted. A job that is
	// not in it is.
	Rejected map[schema.JobName]*schema.Diagnostic
	// Causes has a word for each of them.
	Causes map[schema.JobName]RejectionCause
	// Heals has those of them that may be admitted without another commit.
	Heals map[schema.JobName]Heal
	// Warnings are of quotas that the cell cannot back, and of owners that have
	// more admitted than their quota is now.
	Warnings []Warning
	// Next is when the verdict may change with nothing but time; zero if never.
	Next time.Time
	// Order is that of the admitted jobs: with those up to any of them at their
	// new version and the rest at their old, growth is within the quotas.
	Order []schema.JobName
}

// Heal is what may have a rejected job admitted.
type Heal struct {
	Machines bool      // machines that join: its quota is large enough, and not backed
	At       time.Time // a quota that begins then; zero: none does
}

// Admit decides which of the desired jobs the cell takes on. What is admitted
// stays: a job that asks for no more than it has is never rejected, whatever
// became of its quota. Growth is admitted by priority, high to low, then by
// name, as long as the quotas of its user at its band hold in what grows. Band
// free needs none (Borg §2.5: infinite quota at priority zero). The jobs of a gang
// are admitted together or not at all.
func Admit(in Input) Admission {
	if in.free() {
		return in.admitAll()
	}
	in = in.counted()
	a := admission{
		in: in, out: newAdmission(), budgets: budgetsOf(in), used: map[account]*amounts{}, room: newRoom(in),
	}
	left := a.ask()
	// A job that leaves a band, or asks for less of something, makes room there:
	// then those that found none are asked again.
	for again := true; again; {
		again = false
		var rejected []*wish
		for _, w := range left {
			ok, freed := a.decide(w)
			again = again || freed
			if !ok {
				rejected = append(rejected, w)
			}
		}
		left = rejected
	}
	if len(left) > 0 {
		a.countRuns() // before explainAll tries what is not so
	}
	for _, w := range left {
		a.explainAll(w)
	}
	a.out.Next = nextChange(in.Desired.Quotas, in.Now)
	a.out.Warnings = slices.Concat(a.unbacked(), a.exceeded(), a.room.exceeded())
	slices.SortStableFunc(a.out.Warnings, func(x, y Warning) int { return x.Diagnostic.Compare(y.Diagnostic) })
	return a.out
}

// free reports whether no band needs quota in this cell.
func (in Input) free() bool { return in.Desired.Policy.Quota == "off" }

// admitAll is Admit where no band needs quota: only those are rejected whose names stand for
// nothing, or for what they may not have, and those with which there would be too many tasks.
func (in Input) admitAll() Admission {
	out, room, turns := newAdmission(), newRoom(in), map[turn][]claimant{}
	names := in.Desired.Names()
	gangs := gangsOf(&in.Desired, names)
	for _, name := range names {
		mates := gangs[name]
		if len(mates) > 0 && mates[0] != name {
			continue // it is asked with that one
		}
		c, at := in.claimant(room, name)
		if c.refused && len(mates) == 0 {
			out.refuse(name, &in.Desired.Jobs[name].Refused[0])
			continue
		}
		for i, mate := range mates {
			m, its := c, at
			if i > 0 {
				m, its = in.claimant(room, mate)
			}
			at = at.with(its)
			c.mates = append(c.mates, m)
		}
		turns[at] = append(turns[at], c)
	}
	var left []claimant
	for _, at := range slices.SortedFunc(maps.Keys(turns), turn.compare) {
		left = append(left, turns[at]...)
	}
	for again := true; again; { // what asks for less makes room for what found none
		again = false
		var rejected []claimant
		for i := range left {
			ok, freed := out.decide(room, mates(left, i))
			again = again || freed
			if !ok {
				rejected = append(rejected, left[i])
			}
		}
		left = rejected
	}
	for i := range left {
		out.explain(room, mates(left, i))
	}
	out.Warnings = room.exceeded()
	return out
}

// claimant returns what a job asks for in tasks, and when it is asked.
func (in Input) claimant(room *room, name schema.JobName) (claimant, turn) {
	d := in.Desired.Jobs[name]
	is := in.count(d.Job.With(d.Count))
	was, more := is, false
	if !in.same(name, &d) {
		if was = in.runs(name); was != nil {
			was = in.count(was)
		}
		more = grows(is, was)
	}
	c := claimant{name: name, claim: room.claim(name, &d, was, is), refused: len(d.Refused) > 0}
	return c, turn{more || c.askProtected > c.hadProtected, d.Job.Priority}
}

// decide reports whether a job, or each one of a gang, is admitted, and whether that made room
// for others.
func (a *Admission) decide(room *room, jobs []claimant) (ok, freed bool) {
	taken, lacking := takeAll(room, jobs)
	if len(lacking) > 0 {
		giveBack(taken, func(m claimant) { room.take(m.back()) })
		return false, false
	}
	for _, m := range taken {
		a.Order = append(a.Order, m.name)
		freed = freed || m.shrinks()
	}
	return true, freed
}

// explain rejects a job, or each one of its gang.
func (a *Admission) explain(room *room, jobs []claimant) {
	taken, lacking := takeAll(room, jobs)
	for _, m := range lacking {
		d := room.in.Desired.Jobs[m.name]
		if m.refused {
			a.refuse(m.name, &d.Refused[0])
			continue
		}
		a.tooMany(m.name, room, &d, m.claim)
	}
	giveBack(taken, func(m claimant) { room.take(m.back()) })
	for _, m := range taken {
		a.withGang(room.in, m.name, lacking[0].name)
	}
}

// claimant is a job that asks for tasks.
type claimant struct {
	name schema.JobName
	claim
	refused bool       // it names what it may not
	mates   []claimant // all jobs of its gang, itself the first; nil for none besides it
}

// mates returns all jobs of the gang of the i-th of some jobs.
func mates(jobs []claimant, i int) []claimant {
	if len(jobs[i].mates) > 0 {
		return jobs[i].mates
	}
	return jobs[i : i+1]
}

// takeAll takes those of some jobs that there is room for.
func takeAll(room *room, jobs []claimant) (taken, lacking []claimant) {
	return together(jobs, func(m claimant) bool { return !m.refused && room.over(m.claim) == fits }, func(m claimant) { room.take(m.claim) })
}

// turn is when jobs are asked.
type turn struct {
	grows    bool
	priority schema.Priority
}

// compare puts those first that do not grow, then those of a higher priority.
func (t turn) compare(o turn) int {
	return cmp.Or(schema.CompareBool(t.grows, o.grows), cmp.Compare(o.priority, t.priority))
}

// with returns when jobs are asked that are admitted together.
func (t turn) with(o turn) turn { return turn{t.grows || o.grows, min(t.priority, o.priority)} }

// same reports whether a job surely runs what is desired of it. Where it says no, only time is lost.
func (in Input) same(name schema.JobName, d *intent.DesiredJob) bool {
	if in.state == nil {
		return false
	}
	r := in.state.Jobs[name]
	return r != nil && r.Admitted != "" && r.Admitted == d.Digest && r.Count == d.Count
}

// runs returns the data that a job runs now, nil if it runs nothing.
func (in Input) runs(name schema.JobName) *schema.Job {
	if in.state != nil {
		return in.state.Runs(name)
	}
	return in.Admitted[name]
}

// grows reports whether a job asks for more of anything than it has at its band, or for more tasks, as one in an alloc
// set does, which needs no quota.
func grows(is, was *schema.Job) bool {
	var had amounts
	tasks := 0
	if was != nil && accountOf(was) == accountOf(is) {
		had, tasks = askOf(was), was.Tasks
	}
	return is.Tasks > tasks || len(askOf(is).above(had)) > 0
}

// newAdmission returns a verdict on nothing yet.
func newAdmission() Admission {
	return Admission{Rejected: map[schema.JobName]*schema.Diagnostic{}, Causes: map[schema.JobName]RejectionCause{}, Heals: map[schema.JobName]Heal{}}
}

// refuse rejects a job for what a name in it stands for.
func (a *Admission) refuse(name schema.JobName, why *schema.Diagnostic) {
	a.Causes[name], a.Rejected[name] = RejectedRefused, why
}

// account is what quota is granted to.
type account struct {
	user string
	band schema.Band
}

func accountOf(j *schema.Job) account { return account{j.User, j.Priority.Band()} }

// Quota is counted in the dimensions of resources, in tasks and in jobs.
const (
	tasksDimension = 3 + iota
	jobsDimension
	dimensions
)

// nameOf returns the field of a quota that a dimension is.
func nameOf(d int) string {
	switch d {
	case tasksDimension:
		return "tasks"
	case jobsDimension:
		return "jobs"
	}
	return string(schema.Dimensions()[d])
}

// amounts is how much of each dimension.
type amounts [dimensions]sum

// askOf returns what a job asks for: nothing in an alloc set, which has asked for
// it.
func askOf(j *schema.Job) amounts {
	var m amounts
	if j.AllocSet != "" {
		return m
	}
	for d, dim := range schema.Dimensions() {
		m[d] = sumOf(j.Task.Resources.Of(dim)).times(j.Tasks)
	}
	m[tasksDimension] = sumOf(int64(j.Tasks))
	m[jobsDimension] = sumOf(1)
	return m
}

func (m amounts) plus(o amounts) amounts {
	for d := range m {
		m[d] = m[d].plus(o[d])
	}
	return m
}

func (m amounts) minus(o amounts) amounts {
	for d := range m {
		m[d] = m[d].minus(o[d])
	}
	return m
}

// above returns the dimensions in which m is more than o.
func (m amounts) above(o amounts) []int {
	var out []int
	for d := range m {
		if m[d].over(o[d]) {
			out = append(out, d)
		}
	}
	return out
}

// wish is one desired job.
type wish struct {
	intent.DesiredJob
	name schema.JobName
	was  *schema.Job // that it runs now, nil if nothing
	runs *schema.Job // that its account is charged for: was, or Job once it is admitted
	ask  amounts     // of Job
	had  amounts     // of was
	// moves says that it is new in its account: it had nothing, or was at
	// another band.
	moves bool
	grows []int // dimensions in which it asks for more than it has there
	tasks claim
	at    turn
	mates []*wish // all jobs of its gang, itself the first; nil where another one is
}

// admission is Admit at work.
type admission struct {
	in      Input
	out     Admission
	wishes  []*wish // by name
	budgets map[account]*budget
	used    map[account]*amounts // by what the wishes run
	// runs are the jobs that used counts, by account: see countRuns.
	runs map[account][]*schema.Job
	tops map[dimensionOf][]*schema.Job // what top found
	room *room
}

// dimensionOf is a dimension of an account.
type dimensionOf struct {
	account
	dimension int
}

// ask finds the wishes and charges what runs. It returns them in the order in which they are asked,
// of a gang the first one only: those come first that grow in nothing, since they may make room for
// those that do.
func (a *admission) ask() []*wish {
	names := a.in.Desired.Names()
	gangs := gangsOf(&a.in.Desired, names)
	a.wishes = make([]*wish, 0, len(names))
	asked := make([]*wish, 0, len(names))
	byName := map[schema.JobName]*wish{} // the first of each gang
	for _, name := range names {
		w := a.wish(name)
		a.wishes = append(a.wishes, w)
		if mates := gangs[name]; len(mates) > 0 && mates[0] != name {
			first := byName[mates[0]]
			first.mates, first.at = append(first.mates, w), first.at.with(w.at)
			continue
		} else if len(mates) > 0 {
			byName[name] = w
		}
		w.mates = slices.Clip(a.wishes[len(a.wishes)-1:])
		asked = append(asked, w)
	}
	slices.SortStableFunc(asked, func(x, y *wish) int { return x.at.compare(y.at) })
	return asked
}

// wish returns what a job asks for, and charges what it runs.
func (a *admission) wish(name schema.JobName) *wish {
	d := a.in.Desired.Jobs[name]
	w := &wish{DesiredJob: d, name: name, was: a.in.Admitted[name], ask: askOf(d.Job), moves: true}
	var had amounts
	if w.was != nil {
		w.runs, w.had = w.was, askOf(w.was)
		used := a.usedBy(w.was)
		*used = used.plus(w.had)
		if w.moves = accountOf(w.was) != accountOf(w.Job); !w.moves {
			had = w.had
		}
	}
	w.grows = w.ask.above(had)
	w.tasks = a.room.claim(name, &d, w.was, d.Job)
	w.at = turn{len(w.grows) > 0 || w.tasks.grows(), w.Job.Priority} // one in an alloc set may grow in tasks alone
	return w
}

// usedBy returns what is used of the account of j, to be changed.
func (a *admission) usedBy(j *schema.Job) *amounts {
	k := accountOf(j)
	if a.used[k] == nil {
		a.used[k] = &amounts{}
	}
	return a.used[k]
}

// decide reports whether a job, or each one of its gang, is admitted, in which case its account is
// charged for it, and whether that made room for others.
func (a *admission) decide(w *wish) (ok, freed bool) {
	taken, lacking := together(w.mates, a.fits, a.take)
	if len(lacking) > 0 {
		giveBack(taken, a.leave)
		return false, false
	}
	for _, m := range taken {
		a.out.Order = append(a.out.Order, m.name)
		freed = freed || m.frees(len(w.mates) > 1)
	}
	return true, freed
}

// fits reports whether a job can be admitted: it names what it may, and is not too much.
func (a *admission) fits(w *wish) bool {
	return len(w.Refused) == 0 && len(a.over(w)) == 0 && a.room.over(w.tasks) == fits
}

// take charges the account of a job for what it asks for, in the place of what it had.
func (a *admission) take(w *wish) {
	a.room.take(w.tasks)
	if w.was != nil {
		used := a.usedBy(w.was)
		*used = used.minus(w.had)
	}
	used := a.usedBy(w.Job)
	*used = used.plus(w.ask)
	w.runs = w.Job
}

// leave undoes take.
func (a *admission) leave(w *wish) {
	a.room.take(w.tasks.back())
	used := a.usedBy(w.Job)
	*used = used.minus(w.ask)
	if w.was != nil {
		used := a.usedBy(w.was)
		*used = used.plus(w.had)
	}
	w.runs = w.was
}

// frees reports whether a job makes room when it is admitted, which was not asked before all that grow:
// as one that grows is not, and none of a gang.
func (w *wish) frees(ganged bool) bool {
	return w.tasks.shrinks() || w.was != nil && (ganged || len(w.grows) > 0) && (w.moves || len(w.had.above(w.ask)) > 0)
}

// with returns what is used of the account of w if w is admitted.
func (a *admission) with(w *wish) amounts {
	used := *a.usedBy(w.Job)
	if !w.moves {
		used = used.minus(w.had)
	}
	return used.plus(w.ask)
}

// over returns the dimensions in which w asks for more than it has, and its
// account would be over its quota.
func (a *admission) over(w *wish) []int {
	k := accountOf(w.Job)
	if len(w.grows) == 0 || k.band == schema.BandFree {
		return nil
	}
	return slices.DeleteFunc(a.budgets[k].exceeded(a.with(w)), func(d int) bool { return !slices.Contains(w.grows, d) })
}
