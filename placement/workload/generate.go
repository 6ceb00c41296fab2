package workload

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

const (
	gibibyte = 1 << 30
	// perRack is how many machines a rack has.
	perRack = 40
)

// shape is a kind of machine.
type shape struct {
	platform string
	cores    int64
	ramGiB   int64
	ssd      bool
	share    float64 // of the machines
}

// shapes are more and less CPU and RAM, with most machines in the middle, as in the cells
// whose traces were published (Reiss et al., SoCC 2012, table 1; Tirmazi et al., EuroSys 2020, §3).
var shapes = []shape{
	{"a", 32, 128, false, 0.30},
	{"a", 32, 64, false, 0.18},
	{"b", 48, 192, true, 0.22},
	{"b", 48, 384, false, 0.06},
	{"c", 64, 256, true, 0.14},
	{"c", 96, 384, true, 0.07},
	{"c", 96, 768, true, 0.02},
	{"a", 16, 64, false, 0.01},
}

// Attributes of the machines.
const (
	platformAttribute = "platform"
	storageAttribute  = "storage"
)

// kind is how the jobs of a class are drawn.
type kind struct {
	class      Class
	priorities []schema.Priority // each as likely
	share      float64           // of what is asked for at a time, CPU
	// A task asks for CPU and for RAM with it: medians, and deviations of the logarithm.
	cpuMilli, cpuSigma float64
	ramPerCore, ram    float64 // GiB
	// What a task uses is a share of its limit, about these.
	usesCPU, usesRAM float64
	// Durations, of what ends: the median, and the deviation of the logarithm.
	lasts time.Duration
	sigma float64
}

// kinds are the classes but Short. Production asks for the larger part and uses less of it
// (Borg §2.1, §5.5).
var kinds = []kind{
	{Service, []schema.Priority{200, 210, 220}, 0.60, 2800, 1.0, 3.2, 0.8, 0.45, 0.60, 0, 0},
	{Batch, []schema.Priority{100, 110}, 0.25, 2000, 0.8, 2.6, 0.7, 0.65, 0.70, 5 * time.Hour, 1},
	{BestEffort, []schema.Priority{0, 25}, 0.15, 1500, 0.8, 2.2, 0.7, 0.70, 0.70, 3 * time.Hour, 1},
}

const (
	// alpha is the exponent of the Pareto distribution of what jobs of the kinds ask for: the
	// published one of the work of jobs is 0.69 to 0.77 (Tirmazi et al., EuroSys 2020, §7).
	alpha = 0.72
	// leastCores is the least of it, and mostShare the most, as a share of the cell.
	leastCores = 4.0
	mostShare  = 0.05
	// shortPerJob is how many short jobs arrive in a day for each other one that there is in it:
	// the largest hundredth of all jobs are the others.
	shortPerJob = 99
	// The durations of short jobs: the median, and the deviation of the logarithm.
	shortLasts = 45 * time.Second
	shortSigma = 0.8
	// swing is by how much more and less arrives over a day, as a share.
	swing = 0.3
	// What part of the jobs want of a machine.
	wantsSSD, wantsPlatform = 0.08, 0.06
	// largestTask is the most that a task asks for, as a share of the largest machine.
	largestTask = 0.5
)

type generator struct {
	c        Config
	random   *rand.Rand
	machines []placement.Machine
	capacity schema.Resources
	largest  schema.Resources // of one machine, each dimension for itself
	users    []float64        // the part of the jobs that users before and this one have
	number   int
}

func newGenerator(c Config) *generator {
	g := &generator{c: c, random: rand.New(rand.NewPCG(c.Seed, 5))}
	for i := range c.Machines {
		s := g.shape()
		m := placement.Machine{
			Name: fmt.Sprintf("m%05d", i), Up: true, Capacity: schema.Resources{CPUMilli: s.cores * 1000, RAMBytes: s.ramGiB * gibibyte},
			Attributes: map[string]string{"rack": fmt.Sprintf("r%d", i/perRack), platformAttribute: s.platform, storageAttribute: "hdd"},
		}
		if s.ssd {
			m.Attributes[storageAttribute] = "ssd"
		}
		g.machines = append(g.machines, m)
		g.capacity = g.capacity.Add(m.Capacity)
		g.largest.CPUMilli = max(g.largest.CPUMilli, m.Capacity.CPUMilli)
		g.largest.RAMBytes = max(g.largest.RAMBytes, m.Capacity.RAMBytes)
	}
	sum := 0.0
	for i := range 4 + c.Machines/10 { // Zipf's law: few users have most of the jobs
		sum += 1 / float64(i+1)
		g.users = append(g.users, sum)
	}
	return g
}

// shape draws the shape of a machine.
func (g *generator) shape() shape {
	x := g.random.Float64()
	for _, s := range shapes {
		if x -= s.share; x < 0 {
			return s
		}
	}
	return shapes[0]
}

// jobs draws all jobs.
func (g *generator) jobs() []Job {
	var out []Job
	for i := range kinds {
		out = g.standing(out, &kinds[i])
	}
	if g.c.Span > 0 {
		for i := range kinds {
			if kinds[i].lasts > 0 {
				out = g.arriving(out, &kinds[i])
			}
		}
		standing := 0
		for i := range out {
			if out[i].Arrives == 0 {
				standing++
			}
		}
		const day = 24 * time.Hour
		short := shortPerJob * (float64(standing)*float64(g.c.Span)/float64(day) + float64(len(out)-standing))
		for range int(short) {
			out = append(out, g.short())
		}
	}
	slices.SortStableFunc(out, func(a, b Job) int { return cmp.Compare(a.Arrives, b.Arrives) })
	return out
}

// standing draws the jobs of a kind that are there at the beginning: as much as is there after
// a long time. What lasts long is there more often than it arrives, and is somewhere in its time.
func (g *generator) standing(out []Job, k *kind) []Job {
	want := k.share * g.c.Load * float64(g.capacity.CPUMilli)
	for asked := 0.0; asked < want; {
		j := g.job(k)
		if over := asked + j.cpu() - want; over > 0 && j.Tasks > 1 { // so that a small cell has its load
			j.Tasks = max(1, j.Tasks-int(over/float64(j.Limit.CPUMilli)))
		}
		if k.lasts > 0 {
			j.Lasts = g.logNormal(k.lasts, k.sigma, k.sigma*k.sigma)
			j.Lasts = max(time.Duration(g.random.Float64()*float64(j.Lasts)), time.Second)
		}
		asked += j.cpu()
		out = append(out, j)
	}
	return out
}

// cpu is what the tasks of the job ask for, in thousandths of a core.
func (j *Job) cpu() float64 { return float64(j.Tasks) * float64(j.Limit.CPUMilli) }

// arriving draws the jobs of a kind that arrive: as much as ends.
func (g *generator) arriving(out []Job, k *kind) []Job {
	mean := float64(k.lasts) * math.Exp(k.sigma*k.sigma/2)
	want := k.share * g.c.Load * float64(g.capacity.CPUMilli) * float64(g.c.Span) / mean
	for asked := 0.0; asked < want; {
		j := g.job(k)
		j.Arrives, j.Lasts = g.arrival(), max(g.logNormal(k.lasts, k.sigma, 0), time.Second)
		asked += j.cpu()
		out = append(out, j)
	}
	return out
}

// short draws a short job.
func (g *generator) short() Job {
	k := kind{class: Short, priorities: []schema.Priority{0}, cpuMilli: 300, cpuSigma: 0.5, ramPerCore: 1.5, ram: 0.5, usesCPU: 0.7, usesRAM: 0.7}
	j := g.task(&k)
	j.Tasks = 1 + min(int(g.random.ExpFloat64()*0.7), 9)
	j.Arrives, j.Lasts = g.arrival(), max(g.logNormal(shortLasts, shortSigma, 0), time.Second)
	return j
}

// arrival draws when a job arrives: at the hours when people are awake more often.
func (g *generator) arrival() time.Duration {
	for {
		at := time.Duration(1 + g.random.Int64N(int64(g.c.Span)))
		day := 2 * math.Pi * at.Hours() / 24
		if g.random.Float64()*(1+swing) < 1+swing*math.Sin(day) {
			return at
		}
	}
}

// job draws a job of a kind, as large as its tasks together are.
func (g *generator) job(k *kind) Job {
	j := g.task(k)
	cores := g.pareto(leastCores, mostShare*float64(g.capacity.CPUMilli)/1000)
	j.Tasks = max(1, min(int(cores*1000/float64(j.Limit.CPUMilli)), schema.MaxTasks))
	return j
}

// task draws a job of one task.
func (g *generator) task(k *kind) Job {
	cpu := math.Ceil(k.cpuMilli*math.Exp(k.cpuSigma*g.random.NormFloat64())/50) * 50 // people ask for round numbers
	cpu = min(max(cpu, 50), largestTask*float64(g.largest.CPUMilli))
	ram := cpu / 1000 * k.ramPerCore * math.Exp(k.ram*g.random.NormFloat64()) * gibibyte
	const step = 64 << 20
	ram = min(max(math.Ceil(ram/step)*step, step), largestTask*float64(g.largest.RAMBytes))
	j := Job{
		Class: k.class, Priority: k.priorities[g.random.IntN(len(k.priorities))], Tasks: 1,
		Limit: schema.Resources{CPUMilli: int64(cpu), RAMBytes: int64(ram)},
	}
	j.Usage = schema.Resources{CPUMilli: int64(cpu * g.around(k.usesCPU)), RAMBytes: int64(ram * g.around(k.usesRAM))}
	j.Name = schema.JobName{Cell: "generated", User: g.user(), Job: fmt.Sprintf("%s-%d", k.class, g.number)}
	g.number++
	if k.class != Short {
		j.Constraints = g.constraints()
	}
	return j
}

// constraints draws what a job wants of machines.
func (g *generator) constraints() []placement.Constraint {
	in := func(attribute string, values ...string) []placement.Constraint {
		return []placement.Constraint{{Attribute: attribute, Op: placement.OpIn, Values: values}}
	}
	switch x := g.random.Float64(); {
	case x < wantsSSD:
		return in(storageAttribute, "ssd")
	case x < wantsSSD+wantsPlatform:
		return in(platformAttribute, "b", "c")
	}
	return nil
}

// around draws a share about one, and from a tenth of it to 1.
func (g *generator) around(share float64) float64 {
	return min(max(share*math.Exp(0.4*g.random.NormFloat64()), share/10), 1)
}

// user draws a user.
func (g *generator) user() string {
	x := g.random.Float64() * g.users[len(g.users)-1]
	i, _ := slices.BinarySearch(g.users, x)
	return fmt.Sprintf("user%d", min(i, len(g.users)-1))
}

// pareto draws from a Pareto distribution that is cut off at the most.
func (g *generator) pareto(least, most float64) float64 {
	most = max(most, least)
	tail := math.Pow(least/most, alpha) // the part that is cut off
	return least * math.Pow(1-g.random.Float64()*(1-tail), -1/alpha)
}

// logNormal draws around a median with a deviation of the logarithm, longer by a factor of e to
// the power of more, and at most for a year.
func (g *generator) logNormal(median time.Duration, sigma, more float64) time.Duration {
	const most = 365 * 24 * time.Hour
	return time.Duration(min(float64(median)*math.Exp(sigma*g.random.NormFloat64()+more), float64(most)))
}
