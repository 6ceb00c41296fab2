package fastforward

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/placement/workload"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/schema"
)

// Version is that of the fields of Result: a later one may mean something else by a field.
const Version = 1

// Config says what is played.
type Config struct {
	Work *workload.Workload
	// Span is for how long: a second to MaxSpan.
	Span time.Duration
	// Failures is how often a machine fails in a month of 30 days, on average, and Down for how
	// long it is then gone; 0 failures are none.
	Failures float64
	Down     time.Duration
	Seed     uint64 // of failures, and of what tasks use
	// Reclaim has what tasks ask for and do not use be room for those below production, as
	// reconciler.Master.Reclaim says. Of a job whose Usage is zero a usual one is assumed.
	Reclaim bool
	// Policy is how tasks are placed, see placement.Policy; "" is the master's own.
	Policy string
	// Parallel is that of reconciler.MasterConfig: the result is the same.
	Parallel func(n int, do func(i int))
}

const (
	// MaxSpan bounds Config.Span.
	MaxSpan = workload.MaxSpan
	// MaxFailures bounds Config.Failures.
	MaxFailures = 1000
	month       = 30 * 24 * time.Hour
	// commitEvery is how often there may be a commit.
	commitEvery = time.Minute
	// grain is within what time things that happen are reported together: so a day takes a
	// fourth of the time. It is longer the more tasks wait, by itself for each patient of them:
	// a decision costs what waits, and in a cell with more work than room that grows for ever.
	grain   = 5 * time.Second
	patient = 200
	// samples is how many Samples a Result has.
	samples = 144
)

// begin is when a played cell begins. Nothing depends on it.
var begin = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// player is a cell that plays a workload.
type player struct {
	c      Config
	random *rand.Rand
	cell   *plan.Cell
	jobs   map[schema.JobName]*playing
	names  []schema.JobName // of jobs that are declared, in the order of their arrival
	next   int              // of Work.Jobs
	ended  bool             // a declared job has ended
	number int              // of commits
	boots  int
	down   map[string]bool
	agenda []event
	out    Result
	books
}

// playing is a job that is declared.
type playing struct {
	job     *workload.Job
	pkg     schema.CompiledPackage
	started map[int]bool
	left    int // tasks that have not ended
}

// event is something that happens at a time.
type event struct {
	at time.Duration
	do func(*player) error
}

// Play plays a workload. It errs if the Config is out of its bounds.
func Play(c Config) (*Result, error) {
	switch {
	case c.Span < time.Second || c.Span > MaxSpan:
		return nil, fmt.Errorf("a time of %s: want 1s to %s", c.Span, MaxSpan)
	case !(c.Failures >= 0 && c.Failures <= MaxFailures): // so that NaN is refused
		return nil, fmt.Errorf("%g failures of a machine in a month: want 0 to %d", c.Failures, MaxFailures)
	case len(c.Work.Machines) == 0 || len(c.Work.Jobs) == 0:
		return nil, fmt.Errorf("%s and %s: want at least one of each", schema.Count(len(c.Work.Machines), "machine"), schema.Count(len(c.Work.Jobs), "job"))
	}
	p := &player{
		c: c, random: rand.New(rand.NewPCG(c.Seed, 7)), jobs: map[schema.JobName]*playing{}, down: map[string]bool{},
		books: newBooks(),
	}
	cfg := plan.Config{State: model.NewState(c.Work.Jobs[0].Name.Cell), Now: begin, Lasts: p.lasts, Policy: c.Policy, NoMoves: true, Parallel: c.Parallel}
	if c.Reclaim {
		p.c.Work, cfg.Uses = used(c.Work), p.uses
	}
	var err error
	p.cell, err = plan.New(cfg)
	if err != nil {
		return nil, err
	}
	for i := range c.Work.Machines {
		if err := p.cell.Add(infoOf(&c.Work.Machines[i])); err != nil {
			return nil, err
		}
	}
	p.plan()
	for len(p.agenda) > 0 {
		e := p.agenda[0]
		p.agenda = p.agenda[1:]
		if err := p.cell.Follow(begin.Add(e.at), grain+grain*time.Duration(p.waiting())/patient); err != nil {
			return nil, err
		}
		p.look()
		if err := e.do(p); err != nil {
			return nil, err
		}
	}
	p.finish()
	return &p.out, nil
}

// waiting is how many tasks have arrived, and neither run nor have ended.
func (p *player) waiting() int { return max(0, p.out.Tasks-p.out.Finished-len(p.running)) }

// lasts is how long tasks of a job run.
func (p *player) lasts(job *schema.Job) time.Duration { return p.jobs[job.ID()].job.Lasts }

// uses is what a task uses that has run for some time; nothing once its job is not declared any more.
func (p *player) uses(task schema.TaskName, ran time.Duration) schema.Resources {
	j := p.jobs[task.JobName]
	if j == nil {
		return schema.Resources{}
	}
	return j.job.UsageAt(p.c.Seed, task.Index, ran)
}

// used returns a workload in which it is known of each job what it uses.
func used(w *workload.Workload) *workload.Workload {
	out := *w
	out.Jobs = slices.Clone(w.Jobs)
	for i := range out.Jobs {
		if j := &out.Jobs[i]; j.Usage == (schema.Resources{}) {
			j.Usage = workload.TypicalUsage(j.Priority, j.Limit)
		}
	}
	return &out
}

// plan writes the agenda: all that happens from outside.
func (p *player) plan() {
	add := func(at time.Duration, do func(*player) error) { p.agenda = append(p.agenda, event{at, do}) }
	for at := time.Duration(0); at < p.c.Span; at += commitEvery {
		add(at, (*player).commit)
	}
	for i := range samples {
		add(p.c.Span*time.Duration(i+1)/samples, (*player).sample)
	}
	if p.c.Failures > 0 {
		for i := range p.c.Work.Machines {
			name := p.c.Work.Machines[i].Name
			every := float64(month) / p.c.Failures
			for at := p.random.ExpFloat64() * every; at < float64(p.c.Span); at += p.random.ExpFloat64()*every + float64(p.c.Down) {
				add(time.Duration(at), func(p *player) error { return p.fail(name) })
				if back := time.Duration(at) + p.c.Down; back < p.c.Span {
					add(back, func(p *player) error { return p.back(name) })
				}
			}
		}
	}
	slices.SortStableFunc(p.agenda, func(a, b event) int { return cmp.Compare(a.at, b.at) })
}

// fail has a machine be gone.
func (p *player) fail(name string) error {
	p.down[name] = true
	p.out.Failures++
	_, err := p.cell.Lose([]string{name})
	return err
}

// back has it join again.
func (p *player) back(name string) error {
	delete(p.down, name)
	p.boots++
	return p.cell.Return(name, fmt.Sprintf("boot-%d", p.boots+1))
}

// commit has the jobs be declared that have arrived by now, and those not any more that have ended.
func (p *player) commit() error {
	now := p.cell.Now().Sub(begin)
	changed := p.ended || p.number == 0
	if p.ended {
		p.names = slices.DeleteFunc(p.names, func(name schema.JobName) bool {
			if p.jobs[name].left > 0 {
				return false
			}
			delete(p.jobs, name)
			return true
		})
		p.ended = false
	}
	for ; p.next < len(p.c.Work.Jobs) && p.c.Work.Jobs[p.next].Arrives <= now; p.next++ {
		j := &p.c.Work.Jobs[p.next]
		if _, twice := p.jobs[j.Name]; twice {
			return fmt.Errorf("job %s arrives twice", j.Name)
		}
		p.jobs[j.Name] = &playing{job: j, pkg: packageOf(j), started: map[int]bool{}, left: j.Tasks}
		p.names = append(p.names, j.Name)
		p.out.Jobs++
		p.out.Tasks += j.Tasks
		changed = true
	}
	if !changed {
		return nil
	}
	p.number++
	commit := schema.Compiled{
		Commit: fmt.Sprintf("%040x", p.number), Trailers: schema.Trailers{AllowPrune: schema.MaxTasks},
		Packages: []schema.CompiledPackage{cellPackage(p.c.Work.Jobs[0].Name.Cell)},
	}
	for _, name := range p.names {
		commit.Packages = append(commit.Packages, p.jobs[name].pkg)
	}
	slices.SortFunc(commit.Packages, func(a, b schema.CompiledPackage) int { return strings.Compare(a.Dir, b.Dir) })
	return p.cell.Commit(commit)
}
