package fastforward

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/musterhq/muster/placement/workload"
	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/schema"
)

// Result is what was seen. Field names are stable.
type Result struct {
	Version  int     `json:"version"`
	Policy   string  `json:"policy,omitempty"` // "" is the master's own
	Reclaims bool    `json:"reclaims"`         // see Config.Reclaim
	Machines int     `json:"machines"`
	Seconds  float64 `json:"seconds"`
	// Jobs and Tasks are those that arrived, and Failures how often a machine failed.
	Jobs     int `json:"jobs"`
	Tasks    int `json:"tasks"`
	Failures int `json:"failures"`
	// Load is the digest of what was played: machines, and jobs with their arrivals and ends.
	Load string `json:"load"`
	// Started is how often a task was started, and Finished how many ended by themselves.
	Started  int `json:"started"`
	Finished int `json:"finished"`
	// Evictions are by cause.
	Evictions map[schema.CauseKind]int `json:"evictions"`
	// Waits are how long tasks waited for their first start, by band.
	Waits []Wait `json:"waits"`
	// Mean is the mean of the samples, but Seconds; its counts are rounded.
	Mean    Sample   `json:"mean"`
	Samples []Sample `json:"samples"`
}

// LoadOf returns the digest of a load. It is of what each release says of one in the same way, so
// that releases can be compared: not of the structs of this one.
func LoadOf(w *workload.Workload) string {
	h := sha256.New()
	write := func(format string, args ...any) { _, _ = fmt.Fprintf(h, format+"\n", args...) } // a hash takes all
	amounts := func(r *schema.Resources) string { return fmt.Sprint(r.CPUMilli, r.RAMBytes, r.DiskBytes) }
	for i := range w.Machines {
		m := &w.Machines[i]
		write("machine %s %s", m.Name, amounts(&m.Capacity))
	}
	for i := range w.Jobs {
		j := &w.Jobs[i]
		write("job %s %d %d %s %s %t %d %d", j.Name, j.Priority, j.Tasks, amounts(&j.Limit), amounts(&j.Usage), j.Steady, j.Arrives, j.Lasts)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Sample is what is so at a time. Field names are stable.
type Sample struct {
	Seconds float64 `json:"seconds"` // since the beginning
	Up      int     `json:"up"`      // machines
	// CPU and RAM are what running tasks may use, as a percentage of what machines have that
	// are up, and UsedCPU and UsedRAM what they use: with reclamation the former may be above 100.
	CPU     float64 `json:"cpu"`
	RAM     float64 `json:"ram"`
	UsedCPU float64 `json:"usedCPU"`
	UsedRAM float64 `json:"usedRAM"`
	// ReclaimedCPU and ReclaimedRAM are how much of what running tasks may use their machines do
	// not have, as a percentage of that: what runs in reclaimed resources.
	ReclaimedCPU float64 `json:"reclaimedCPU"`
	ReclaimedRAM float64 `json:"reclaimedRAM"`
	Running      int     `json:"running"` // tasks
	Pending      int     `json:"pending"`
	// Evicted is how many tasks were evicted since the sample before.
	Evicted int `json:"evicted"`
}

// Wait is how long tasks waited for their first start. Field names are stable.
type Wait struct {
	Band    schema.Band `json:"band"`
	Tasks   int         `json:"tasks"`   // that were started
	Pending int         `json:"pending"` // that never were: these do not count below
	// P50, P90 and P99 are percentiles in seconds.
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
}

// books are what is counted while a cell plays.
type books struct {
	running map[schema.TaskName]run
	evicted int
	waits   map[schema.Band][]float64
}

// run is a task that runs, as far as the master knows.
type run struct {
	machine string
	job     *workload.Job
	since   time.Time
}

func newBooks() books {
	return books{running: map[schema.TaskName]run{}, waits: map[schema.Band][]float64{}}
}

// look takes what has happened to tasks.
func (p *player) look() {
	for _, s := range p.cell.Steps(begin) {
		name, err := schema.ParseTaskName(p.c.Work.Jobs[0].Name.Cell + "/" + s.Task)
		j := p.jobs[name.JobName]
		if err != nil || j == nil {
			continue // it has ended, and is removed
		}
		switch s.Do {
		case plan.Start:
			p.starts(name, j, &s)
		case plan.Stop, plan.End:
			p.ends(name, j, s.Cause)
		case plan.Change:
		}
	}
}

func (p *player) starts(name schema.TaskName, j *playing, s *plan.Step) {
	p.out.Started++
	if !j.started[name.Index] {
		j.started[name.Index] = true
		band := j.job.Priority.Band()
		p.waits[band] = append(p.waits[band], max(0, s.Seconds-j.job.Arrives.Seconds()))
	}
	p.running[name] = run{s.Machine, j.job, p.cell.Now()}
}

func (p *player) ends(name schema.TaskName, j *playing, cause schema.CauseKind) {
	delete(p.running, name)
	switch cause {
	case schema.CauseFinished:
		p.out.Finished++
		j.left--
		p.ended = p.ended || j.left == 0
	case schema.CauseRemoved:
	default:
		if p.out.Evictions == nil {
			p.out.Evictions = map[schema.CauseKind]int{}
		}
		p.out.Evictions[cause]++
		p.evicted++
	}
}

// sample writes down what is so now.
func (p *player) sample() error {
	// What a machine had that is gone does not run, before the master knows that, too.
	limits, uses := map[string]schema.Resources{}, map[string]schema.Resources{}
	running := 0
	for name, r := range p.running {
		if !p.down[r.machine] {
			limits[r.machine] = limits[r.machine].Add(r.job.Limit)
			uses[r.machine] = uses[r.machine].Add(r.job.UsageAt(p.c.Seed, name.Index, p.cell.Now().Sub(r.since)))
			running++
		}
	}
	var has, limit, used, over schema.Resources
	up := 0
	for i := range p.c.Work.Machines {
		m := &p.c.Work.Machines[i]
		if p.down[m.Name] {
			continue
		}
		has, limit = has.Add(m.Capacity), limit.Add(limits[m.Name])
		over.CPUMilli += max(0, limits[m.Name].CPUMilli-m.Capacity.CPUMilli)
		over.RAMBytes += max(0, limits[m.Name].RAMBytes-m.Capacity.RAMBytes)
		used.CPUMilli += min(uses[m.Name].CPUMilli, m.Capacity.CPUMilli)
		used.RAMBytes += min(uses[m.Name].RAMBytes, m.Capacity.RAMBytes)
		up++
	}
	percent := func(part, of int64) float64 { return 100 * float64(part) / float64(max(of, 1)) }
	s := Sample{
		Seconds: p.cell.Now().Sub(begin).Seconds(), Up: up, Running: running, Evicted: p.evicted,
		CPU: percent(limit.CPUMilli, has.CPUMilli), RAM: percent(limit.RAMBytes, has.RAMBytes),
		UsedCPU: percent(used.CPUMilli, has.CPUMilli), UsedRAM: percent(used.RAMBytes, has.RAMBytes),
		ReclaimedCPU: percent(over.CPUMilli, limit.CPUMilli), ReclaimedRAM: percent(over.RAMBytes, limit.RAMBytes),
	}
	for _, j := range p.jobs {
		s.Pending += j.left
	}
	s.Pending -= running
	p.evicted = 0
	p.out.Samples = append(p.out.Samples, s)
	return nil
}

// finish sums up.
func (p *player) finish() {
	o := &p.out
	o.Reclaims, o.Load = p.c.Reclaim, LoadOf(p.c.Work)
	o.Version, o.Policy, o.Machines, o.Seconds = Version, p.c.Policy, len(p.c.Work.Machines), p.c.Span.Seconds()
	never := map[schema.Band]int{}
	for _, j := range p.jobs {
		never[j.job.Priority.Band()] += j.job.Tasks - len(j.started)
	}
	for _, band := range schema.Bands() {
		w := p.waits[band]
		if len(w)+never[band] == 0 {
			continue
		}
		slices.Sort(w)
		at := func(share float64) float64 {
			if len(w) == 0 {
				return 0
			}
			return w[max(0, int(math.Ceil(share*float64(len(w))))-1)]
		}
		o.Waits = append(o.Waits, Wait{Band: band, Tasks: len(w), Pending: never[band], P50: at(0.5), P90: at(0.9), P99: at(0.99)})
	}
	o.Mean = mean(o.Samples)
}

func mean(of []Sample) Sample {
	var m Sample
	n := float64(len(of))
	var up, running, pending, evicted float64
	for i := range of {
		s := &of[i]
		m.CPU, m.RAM, m.UsedCPU, m.UsedRAM = m.CPU+s.CPU/n, m.RAM+s.RAM/n, m.UsedCPU+s.UsedCPU/n, m.UsedRAM+s.UsedRAM/n
		m.ReclaimedCPU, m.ReclaimedRAM = m.ReclaimedCPU+s.ReclaimedCPU/n, m.ReclaimedRAM+s.ReclaimedRAM/n
		up, running, pending, evicted = up+float64(s.Up)/n, running+float64(s.Running)/n, pending+float64(s.Pending)/n, evicted+float64(s.Evicted)/n
	}
	m.Up, m.Running, m.Pending, m.Evicted = int(math.Round(up)), int(math.Round(running)), int(math.Round(pending)), int(math.Round(evicted))
	return m
}
