package placement_test

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

const gib = 1 << 30

// fleet returns n machines of five shapes in racks of 40.
func fleet(n int) []placement.Machine {
	var out []placement.Machine
	for i := range n {
		cores := []int64{16, 32, 48, 64, 96}[i%5]
		out = append(out, placement.Machine{
			Name: fmt.Sprintf("m%05d", i), Up: true,
			Capacity:   schema.Resources{CPUMilli: cores * 1000, RAMBytes: cores * 4 * gib, DiskBytes: 1000 * gib},
			Ports:      schema.PortRange{First: 20000, Last: 29999},
			Attributes: map[string]string{"rack": fmt.Sprintf("r%04d", i/40), "arch": []string{"amd64", "arm64"}[i%2]},
		})
	}
	return out
}

// jobs returns tasks of so many jobs of so many users, each job its own class.
func jobs(tasks, jobs, users int) []placement.Ask {
	var out []placement.Ask
	for j := range jobs {
		for i := range tasks / jobs {
			out = append(out, placement.Ask{
				Name:     schema.JobName{Cell: "c", User: fmt.Sprintf("u%04d", j%users), Job: fmt.Sprintf("j%05d", j)}.Task(i),
				Priority: []schema.Priority{25, 110, 200}[j%3],
				Limit: schema.Resources{
					CPUMilli: int64(100 + j*37%1900), RAMBytes: int64(256+j*53%7000) << 20, DiskBytes: 1 << 20,
				},
			})
		}
	}
	slices.SortFunc(out, func(a, b placement.Ask) int { return a.Name.Compare(b.Name) })
	return out
}

// same returns n identical asks of one job.
func same(n int) []placement.Ask {
	out := make([]placement.Ask, n)
	for i := range out {
		out[i] = placement.Ask{
			Name: schema.JobName{Cell: "c", User: "u", Job: "j"}.Task(i), Priority: 200,
			Limit: schema.Resources{CPUMilli: 10, RAMBytes: 1 << 20},
		}
	}
	return out
}

// distinct returns n asks no two of which are in one class.
func distinct(n int) []placement.Ask {
	out := same(n)
	for i := range out {
		out[i].Name = schema.JobName{Cell: "c", User: "u", Job: fmt.Sprintf("j%06d", i)}.Task(0)
		out[i].Limit.RAMBytes += int64(i) << 10
	}
	return out
}

// run measures placing the asks on an empty cell, in tasks a second and bytes
// a task, and returns the tasks in a second of processor time.
func run(b *testing.B, machines []placement.Machine, asks []placement.Ask, o placement.Options) float64 {
	var spent, busy time.Duration
	var bytes uint64
	placed := 0
	for b.Loop() {
		b.StopTimer()
		s := placement.NewSnapshot(machines, nil)
		s.Configure(o)
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		b.StartTimer()
		start, cpu := time.Now(), processor()
		out := placement.Place(s, asks, 1)
		spent += time.Since(start)
		busy += processor() - cpu
		b.StopTimer()
		placed = 0
		for _, d := range out {
			if d.Machine != "" {
				placed++
			}
		}
		out = nil //nolint:ineffassign,wastedassign // it would be counted as memory of the snapshot
		runtime.GC()
		runtime.ReadMemStats(&after)
		bytes = after.HeapAlloc - min(before.HeapAlloc, after.HeapAlloc)
		runtime.KeepAlive(s)
		b.StartTimer()
	}
	b.ReportMetric(float64(len(asks)*b.N)/spent.Seconds(), "tasks/s")
	rate := float64(len(asks)*b.N) / busy.Seconds()
	b.ReportMetric(rate, "tasks/cpu-s")
	b.ReportMetric(float64(bytes)/float64(len(asks)), "B/task")
	b.ReportMetric(float64(placed), "placed")
	return rate
}

// processor returns the processor time that the process used, collecting
// garbage included: what counts on a machine that others use too.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkSwarmkitShape(b *testing.B) {
	for _, n := range []int{10_000, 100_000} {
		b.Run(fmt.Sprint("identical/", n), func(b *testing.B) { run(b, fleet(1000), same(n), placement.Options{}) })
		b.Run(fmt.Sprint("distinct/", n), func(b *testing.B) { run(b, fleet(1000), distinct(n), placement.Options{}) })
	}
}

func BenchmarkNomadShape(b *testing.B) {
	for _, kind := range []string{"plain", "racks", "affinity"} {
		b.Run(kind, func(b *testing.B) {
			asks := jobs(10_000, 100, 10)
			for i := range asks {
				switch kind {
				case "plain":
					asks[i].Spread = placement.NoSpread
				case "affinity":
					asks[i].Preferences = []placement.Preference{{
						Constraint: placement.Constraint{Attribute: "arch", Op: placement.OpIn, Values: []string{"arm64"}}, Weight: 50,
					}}
				}
			}
			run(b, fleet(5000), asks, placement.Options{})
		})
	}
}

func BenchmarkFromEmpty(b *testing.B) {
	asks := jobs(100_000, 2000, 200)
	machines := fleet(10_000)
	var bare float64
	b.Run("bare-limit", func(b *testing.B) { bare = bareLimit(b, machines, asks) })
	for _, c := range []struct {
		name string
		o    placement.Options
	}{
		{"all", placement.Options{}},
		{"no-relaxed", placement.Options{NoRelaxed: true}},
		{"no-cache", placement.Options{NoCache: true}},
		{"no-classes", placement.Options{NoClasses: true}},
		{"no-classes-no-cache", placement.Options{NoCache: true, NoClasses: true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			// How many times the processor time of the bare limit it takes.
			b.ReportMetric(bare/run(b, machines, asks, c.o), "×bare")
		})
	}
	// Without any technique every machine is scored for every task; a tenth
	// of the tasks gives the rate.
	b.Run("none/tenth", func(b *testing.B) {
		run(b, machines, asks[:10_000], placement.Options{NoRelaxed: true, NoCache: true, NoClasses: true})
	})
}

// bareLimit is the least that any scheduler with classes does: one scan of the
// free vectors for each class, and one look through a rack for each task.
func bareLimit(b *testing.B, machines []placement.Machine, asks []placement.Ask) float64 {
	n := len(machines)
	cpu, ram, score := make([]int64, n), make([]int64, n), make([]float32, n)
	const rack = 40
	best := make([]int, (n+rack-1)/rack)
	start := processor()
	for b.Loop() {
		for i, m := range machines {
			cpu[i], ram[i] = m.Capacity.CPUMilli, m.Capacity.RAMBytes
		}
		var class schema.Resources
		settle := func(r int) {
			best[r] = -1
			for i := r * rack; i < min((r+1)*rack, n); i++ {
				score[i] = -1
				if class.CPUMilli <= cpu[i] && class.RAMBytes <= ram[i] {
					score[i] = float32(cpu[i]-class.CPUMilli)*1e-5 + float32(ram[i]-class.RAMBytes)*1e-12
					if best[r] < 0 || score[i] < score[best[r]] {
						best[r] = i
					}
				}
			}
		}
		for _, a := range asks {
			if a.Limit != class {
				class = a.Limit
				for r := range best {
					settle(r)
				}
			}
			at := -1
			for _, i := range best {
				if i >= 0 && (at < 0 || score[i] < score[at]) {
					at = i
				}
			}
			if at >= 0 {
				cpu[at] -= class.CPUMilli
				ram[at] -= class.RAMBytes
				settle(at / rack)
			}
		}
	}
	b.ReportMetric(float64(len(asks)*b.N)/b.Elapsed().Seconds(), "tasks/s")
	rate := float64(len(asks)*b.N) / (processor() - start).Seconds()
	b.ReportMetric(rate, "tasks/cpu-s")
	return rate
}

// The worst interleaving: each of 2,000 users has one job, all of one
// priority, so that every task is of another class than the one before.
func BenchmarkInterleaved(b *testing.B) {
	asks := jobs(100_000, 2000, 2000)
	for i := range asks {
		asks[i].Priority = 110
		// A constraint, so that turns are single tasks whatever the room.
		asks[i].Constraints = []placement.Constraint{{Attribute: "arch", Op: placement.OpExists}}
	}
	run(b, fleet(10_000), asks, placement.Options{})
}

func BenchmarkOneNewTask(b *testing.B) {
	s := placement.NewSnapshot(fleet(10_000), nil)
	asks := jobs(100_000, 2000, 200)
	placement.Place(s, asks, 1)
	placement.Place(s, nil, 1) // at rest: what is typical of so much new is learnt
	for _, kind := range []string{"known-class", "new-class"} {
		b.Run(kind, func(b *testing.B) {
			i := 0
			cpu := processor()
			for b.Loop() {
				a := asks[i*50%len(asks)]
				a.Name.Index += 1000 + i
				if kind == "new-class" {
					a.Name.Job, a.Limit.RAMBytes = fmt.Sprint("new-", i), a.Limit.RAMBytes+int64(i)
				}
				placement.Place(s, []placement.Ask{a}, 1)
				i++
			}
			b.ReportMetric(float64((processor()-cpu).Nanoseconds())/1000/float64(b.N), "cpu-µs/task")
		})
	}
	b.Run("nothing", func(b *testing.B) {
		for b.Loop() {
			placement.Place(s, nil, 1)
		}
	})
}

// full fills a cell to about so many percent of its RAM with batch tasks.
func full(machines []placement.Machine, percent int64) *placement.Snapshot {
	s := placement.NewSnapshot(machines, nil)
	var tasks []placement.Task
	for i, m := range machines {
		limit := schema.Resources{CPUMilli: m.Capacity.CPUMilli * percent / 2000, RAMBytes: m.Capacity.RAMBytes * percent / 2000}
		for k := range 20 {
			ask := placement.Ask{Limit: limit, Priority: 110}
			tasks = append(tasks, placement.Task{
				Name:    schema.JobName{Cell: "c", User: "old", Job: fmt.Sprintf("j%04d", i%500)}.Task(i*20 + k),
				Machine: m.Name, Priority: 110, Limit: limit, Ask: &ask,
			})
		}
	}
	for _, t := range tasks {
		s.SetTask(t)
	}
	return s
}

func BenchmarkPending(b *testing.B) {
	asks := jobs(1000, 1000, 100)
	for i := range asks { // too large for what is left anywhere
		asks[i].Limit.CPUMilli = 6000 + int64(i)
		asks[i].Priority = 110
	}
	b.Run("plain", func(b *testing.B) { benchmarkPending(b, full(fleet(10_000), 95), asks) })
	b.Run("devices", func(b *testing.B) {
		machines := fleet(10_000)
		for i := 0; i < len(machines); i += 20 {
			machines[i].Devices = []placement.Device{{Kind: "gpu", Count: 8}}
		}
		asks := slices.Clone(asks)
		for i := 0; i < len(asks); i += 4 {
			asks[i].Devices = []placement.DeviceAsk{{Kind: "gpu", Count: 1}}
		}
		benchmarkPending(b, full(machines, 95), asks)
	})
}

func benchmarkPending(b *testing.B, s *placement.Snapshot, asks []placement.Ask) {
	start := processor()
	placement.Place(s, asks, 1) // asks every machine
	first := processor() - start
	var took, busy []time.Duration
	i := 0
	for b.Loop() {
		// Between passes a hundred machines change.
		b.StopTimer()
		for k := range 100 {
			at := (i*100 + k) * 7 % 10_000
			s.SetTask(placement.Task{
				Name: schema.JobName{Cell: "c", User: "churn", Job: "j"}.Task(at), Machine: fmt.Sprintf("m%05d", at),
				Priority: 110, Limit: schema.Resources{CPUMilli: int64(1 + i%2)},
			})
		}
		i++
		b.StartTimer()
		start, cpu := time.Now(), processor()
		placement.Place(s, asks, 1)
		took, busy = append(took, time.Since(start)), append(busy, processor()-cpu)
	}
	p99 := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)*99/100].Microseconds()) / 1000
	}
	b.ReportMetric(p99(took), "p99-ms")
	b.ReportMetric(p99(busy), "p99-cpu-ms")
	b.ReportMetric(float64(first.Microseconds())/1000, "first-cpu-ms")
}

func BenchmarkPreempt(b *testing.B) {
	for _, classes := range []int{1, 20, 200} {
		b.Run(fmt.Sprint("classes=", classes), func(b *testing.B) {
			asks := jobs(2000, classes, min(classes, 20))
			for i := range asks {
				asks[i].Priority = 200
				asks[i].Limit.CPUMilli = 4000 + asks[i].Limit.CPUMilli%100
			}
			evicted := 0
			var busy time.Duration
			for b.Loop() {
				b.StopTimer()
				s := full(fleet(5000), 99)
				s.Configure(placement.Options{Preempt: true})
				b.StartTimer()
				evicted = 0
				cpu := processor()
				for _, d := range placement.Place(s, asks, 1) {
					evicted += len(d.Victims)
				}
				busy += processor() - cpu
			}
			b.ReportMetric(float64(busy.Milliseconds())/float64(b.N), "cpu-ms/op")
			b.ReportMetric(float64(evicted), "victims")
		})
	}
}

// BenchmarkPreemptWish: 50 jobs of one task each where all is full of batch, with a wish that two
// thirds of the machines meet, and without.
func BenchmarkPreemptWish(b *testing.B) {
	for _, wish := range []bool{false, true} {
		b.Run(fmt.Sprint("wish=", wish), func(b *testing.B) {
			asks := distinct(50)
			for i := range asks {
				if asks[i].Limit.CPUMilli = 4000; wish {
					asks[i].Preferences = []placement.Preference{prefers("disk", "ssd", 50)}
				}
			}
			for b.Loop() {
				b.StopTimer()
				machines := fleet(10_000)
				for i := range machines {
					machines[i].Attributes["disk"] = []string{"ssd", "ssd", "hdd"}[i%3]
				}
				s := full(machines, 99)
				s.Configure(placement.Options{Preempt: true})
				b.StartTimer()
				placement.Place(s, asks, 1)
			}
		})
	}
}

func BenchmarkMemory(b *testing.B) {
	machines := fleet(10_000)
	asks := jobs(100_000, 2000, 200)
	s := placement.NewSnapshot(machines, nil)
	var tasks []placement.Task
	for i, d := range placement.Place(s, asks, 1) {
		if d.Machine != "" {
			tasks = append(tasks, placement.Task{
				Name: d.Name, Machine: d.Machine, Priority: 110, Limit: asks[i].Limit, Ports: schema.PortsOf(map[string]int{"http": 20000 + i%9000}),
			})
		}
	}
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for b.Loop() {
		before := heap()
		empty := placement.NewSnapshot(machines, nil)
		with := heap()
		loaded := placement.NewSnapshot(machines, tasks)
		all := heap()
		b.ReportMetric((with-before)/float64(len(machines)), "B/machine")
		b.ReportMetric((all-with-(with-before))/float64(len(tasks)), "B/task")
		runtime.KeepAlive(empty)
		runtime.KeepAlive(loaded)
		s = nil //nolint:ineffassign,wastedassign // or the next round counts it as used
	}
}

// What a fork costs, with one task taken out and asked whether it would fit as its
// machine is, beside taking it out of the snapshot and putting it back; and what it
// costs to make and to verify a plan, by decision. Each at two sizes of the cell: the
// cost goes with what changes.
func BenchmarkFork(b *testing.B) {
	for _, machines := range []int{1000, 10_000} {
		s := full(fleet(machines), 50)
		placement.Place(s, distinct(1), 1)
		victim := placement.Task{
			Name: schema.JobName{Cell: "c", User: "old", Job: "j0100"}.Task(100 * 20), Machine: "m00100", Priority: 110, Limit: schema.Resources{CPUMilli: 1},
		}
		name := func(kind string) string { return fmt.Sprintf("%s/machines=%d", kind, machines) }
		b.Run(name("fork"), func(b *testing.B) {
			for b.Loop() {
				s.Fork().Release()
			}
		})
		b.Run(name("change"), func(b *testing.B) {
			for b.Loop() {
				f := s.Fork()
				f.RemoveTask(victim.Name, victim.Machine, 0)
				f.Release()
			}
		})
		b.Run(name("undo"), func(b *testing.B) {
			for b.Loop() {
				s.RemoveTask(victim.Name, victim.Machine, 0)
				s.SetTask(victim)
			}
		})
		asks := distinct(100)
		b.Run(name("plan"), func(b *testing.B) {
			for b.Loop() {
				placement.NewPlan(s, asks, nil, 1)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(asks)), "ns/decision")
		})
		p := placement.NewPlan(s, asks, nil, 1)
		b.Run(name("verify"), func(b *testing.B) {
			for b.Loop() {
				placement.Verify(p, s)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(asks)), "ns/decision")
		})
	}
}

// BenchmarkManyOnAMachine: what it costs to take in a task again that is known, beside 10 and
// 1,000 others of other jobs, with a port each.
func BenchmarkManyOnAMachine(b *testing.B) {
	for _, tasks := range []int{10, 1000} {
		b.Run(strconv.Itoa(tasks), func(b *testing.B) {
			s := placement.NewSnapshot([]placement.Machine{{
				Name: "m", Capacity: schema.Resources{CPUMilli: 64_000, RAMBytes: 1 << 40}, Ports: schema.PortRange{First: 20000, Last: 29999},
			}}, nil)
			all := make([]placement.Task, tasks)
			for i := range all {
				all[i] = placement.Task{
					Name: schema.JobName{Cell: "c", User: "u", Job: strconv.Itoa(i)}.Task(0), Machine: "m", Priority: 110,
					Limit: schema.Resources{CPUMilli: 10, RAMBytes: 1 << 20}, Ports: schema.PortsOf(map[string]int{"http": 20000 + i}),
				}
				s.SetTask(all[i])
			}
			i := 0
			for b.Loop() {
				s.SetTask(all[i%tasks])
				i++
			}
		})
	}
}
