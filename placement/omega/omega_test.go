package omega_test

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/placement/omega"
)

func run(t *testing.T, c omega.Config) omega.Result {
	t.Helper()
	r, err := omega.Run(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// small is a cell in which an experiment takes some milliseconds.
func small() omega.Config {
	c := omega.Cell()
	c.Machines, c.Length, c.Batch.Every = 60, 2*time.Minute, time.Second
	c.Used = 0.5
	return c
}

// What is to be expected of the architectures, whatever the numbers are.
func TestArchitectures(t *testing.T) {
	t.Parallel()
	slow := small()
	slow.Service.PerJob = 20 * time.Second
	of := func(a omega.Architecture, schedulers int) omega.Result {
		c := slow
		c.Architecture, c.Schedulers, c.Apart = a, schedulers, schedulers > 1
		r := run(t, c)
		if again := run(t, c); again != r {
			t.Errorf("%s: %+v, and then %+v", a, r, again)
		}
		return r
	}
	single, multi, offers, shared := of(omega.SinglePath, 1), of(omega.MultiPath, 1), of(omega.TwoLevel, 2), of(omega.SharedState, 2)
	for name, r := range map[string]omega.Result{"single path": single, "multi path": multi, "two-level": offers} {
		if r.Conflicts+r.TaskConflicts > 0 {
			t.Errorf("%s has conflicts: %+v", name, r)
		}
	}
	if shared.Conflicts == 0 {
		t.Error("schedulers that decide for so long and share a cell have no conflicts")
	}
	if single.Batch.Wait < 10*shared.Batch.Wait || multi.Batch.Wait < 10*shared.Batch.Wait {
		t.Errorf("batch jobs wait behind services for %s and %s, and where they have a scheduler for %s", single.Batch.Wait, multi.Batch.Wait, shared.Batch.Wait)
	}
	if offers.Batch.Unfinished+offers.Batch.Abandoned <= shared.Batch.Unfinished+shared.Batch.Abandoned {
		t.Errorf("with all on offer to services no more batch jobs are left (%+v) than with shared state (%+v)", offers.Batch, shared.Batch)
	}
}

// More schedulers, longer decisions, gangs and coarse detection give more conflicts; at our speeds
// there are nearly none.
func TestConflicts(t *testing.T) {
	t.Parallel()
	c := small()
	c.Schedulers = 4
	four := run(t, c)
	if one := c; true {
		one.Schedulers = 1
		if r := run(t, one); r.Conflicts > 0 {
			t.Errorf("a scheduler is in conflict with itself: %+v", r)
		}
	}
	for name, change := range map[string]func(*omega.Config){
		"longer decisions": func(c *omega.Config) { c.Batch.PerJob *= 10 },
		"coarse detection": func(c *omega.Config) { c.Coarse = true },
	} {
		more := c
		change(&more)
		if r := run(t, more); r.ConflictFraction <= four.ConflictFraction {
			t.Errorf("%s: conflicts %.4f, before %.4f", name, r.ConflictFraction, four.ConflictFraction)
		}
	}
	rows, err := omega.Curve(c, []int{4}, []omega.Speed{omega.Ours()})
	if err != nil {
		t.Fatal(err)
	}
	if f := rows[0].Result.ConflictFraction; f >= 0.01 || rows[0].Result.Tasks == 0 {
		t.Errorf("four schedulers at our speed: %.4f conflicts a commit", f)
	}
}

// A gang is placed whole or not at all.
func TestGangs(t *testing.T) {
	t.Parallel()
	c := small()
	c.Schedulers, c.Gangs, c.Policy = 8, true, placement.BestFit
	c.Batch.PerJob = 3 * time.Second
	r := run(t, c)
	if r.Conflicts == 0 || r.TaskConflicts < r.Conflicts {
		t.Errorf("%+v: want conflicts of whole jobs", r)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*omega.Config){
		"architecture":     func(c *omega.Config) { c.Architecture = "none" },
		"0 machines":       func(c *omega.Config) { c.Machines = 0 },
		"used":             func(c *omega.Config) { c.Used = 2 },
		"65 schedulers":    func(c *omega.Config) { c.Schedulers = 65 },
		"2 schedulers":     func(c *omega.Config) { c.Architecture, c.Schedulers = omega.MultiPath, 2 },
		"one of their own": func(c *omega.Config) { c.Apart = true },
		"length":           func(c *omega.Config) { c.Length = 0 },
		"batch jobs":       func(c *omega.Config) { c.Batch.Tasks = 0 },
		"service jobs":     func(c *omega.Config) { c.Service.Share = 0.7 },
	} {
		c := small()
		change(&c)
		if _, err := omega.Run(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	rows, err := omega.Compare(small(), []time.Duration{time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := omega.WriteTable(&out, rows); err != nil {
		t.Fatal(err)
	}
	for _, a := range omega.Architectures() {
		if !strings.Contains(out.String(), string(a)+", 1s") {
			t.Errorf("%s is not in the table:\n%s", a, out.String())
		}
	}
}

// BenchmarkOmega prints the tables of docs/performance-placement.md.
func BenchmarkOmega(b *testing.B) {
	table := func(name string, rows func(c omega.Config) ([]omega.Row, error)) {
		b.Run(name, func(b *testing.B) {
			var out strings.Builder
			for b.Loop() {
				out.Reset()
				rows, err := rows(omega.Cell())
				if err == nil {
					err = omega.WriteTable(&out, rows)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			b.Log("\n" + out.String())
		})
	}
	slow := []omega.Speed{{"10 ms", 10 * time.Millisecond, time.Millisecond}, {"100 ms", 100 * time.Millisecond, 5 * time.Millisecond}, {"1 s", time.Second, 50 * time.Millisecond}}
	for _, v := range append([]omega.Speed{omega.Ours()}, slow...) {
		table("curve/"+v.Name, func(c omega.Config) ([]omega.Row, error) {
			return omega.Curve(c, []int{1, 2, 4, 8, 16}, []omega.Speed{v})
		})
	}
	for name, change := range map[string]func(c *omega.Config){
		"gangs":  func(c *omega.Config) { c.Gangs = true },
		"coarse": func(c *omega.Config) { c.Coarse = true },
		"random": func(c *omega.Config) { c.Policy = placement.Random },
	} {
		table(name, func(c omega.Config) ([]omega.Row, error) {
			change(&c)
			return omega.Curve(c, []int{4}, slow)
		})
	}
	for _, takes := range []time.Duration{100 * time.Millisecond, 10 * time.Second, 100 * time.Second} {
		table("architectures/"+takes.String(), func(c omega.Config) ([]omega.Row, error) {
			return omega.Compare(c, []time.Duration{takes})
		})
	}
}
