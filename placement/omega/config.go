package omega

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/placement"
)

// Architecture is how schedulers share a cell.
type Architecture string

// The architectures.
const (
	// SinglePath is one scheduler, which takes as long for a batch job as for a service.
	SinglePath Architecture = "monolithic, single path"
	// MultiPath is one scheduler, which has a fast path for batch jobs.
	MultiPath Architecture = "monolithic, multi path"
	// TwoLevel is schedulers that are offered all that is free, and that nobody else has on
	// offer: as in Mesos. What one has on offer while it decides, no other one sees.
	TwoLevel Architecture = "two-level"
	// SharedState is schedulers that all see the whole cell, plan on a copy, and commit what
	// still holds by then.
	SharedState Architecture = "shared state"
)

// Architectures are all of them.
func Architectures() []Architecture {
	return []Architecture{SinglePath, MultiPath, TwoLevel, SharedState}
}

// Jobs says which jobs of a kind come, and how long it takes to decide them.
type Jobs struct {
	Every time.Duration // mean time between two that come; exponential
	Tasks int           // mean number of tasks; geometric
	Stays time.Duration // mean time that a task runs; exponential
	// Share is how much of a machine's CPU and RAM a task wants in the mean; uniform, up to
	// twice of it.
	Share float64
	// PerJob and PerTask are what a decision takes: t_job and t_task of the paper.
	PerJob, PerTask time.Duration
}

// Config is one experiment.
type Config struct {
	Architecture Architecture
	Machines     int
	// Used is how much of each machine other work has, which stays: 0 to 0.95.
	Used float64
	// Schedulers is how many there are, of SharedState and TwoLevel.
	Schedulers int
	// Apart has the first scheduler decide all services, and the others the batch jobs. Else all
	// take jobs of both kinds in turn.
	Apart          bool
	Batch, Service Jobs
	// Gangs has the tasks of a job commit together or not at all; else those that hold are
	// committed, and only the others are tried again.
	Gangs bool
	// Coarse takes any change of a machine since a plan began as a conflict; else only what leaves
	// no room.
	Coarse bool
	// Policy chooses machines; "" is placement.Hybrid.
	Policy placement.Policy
	// Length is how long jobs come, in virtual time; a job that waits then still counts.
	Length time.Duration
	Seed   uint64
}

// mostMachines and mostSchedulers bound an experiment.
const (
	mostMachines   = 100_000
	mostSchedulers = 64
)

// check returns what is wrong with a configuration.
func (c *Config) check() error {
	switch {
	case !slices.Contains(Architectures(), c.Architecture):
		return fmt.Errorf("architecture %q: want one of %q", c.Architecture, Architectures())
	case c.Machines < 1 || c.Machines > mostMachines:
		return fmt.Errorf("%d machines: want 1 to %d", c.Machines, mostMachines)
	case !(c.Used >= 0 && c.Used <= 0.95): // so that NaN is refused
		return fmt.Errorf("used %g: want 0 to 0.95", c.Used)
	case c.Schedulers < 1 || c.Schedulers > mostSchedulers:
		return fmt.Errorf("%d schedulers: want 1 to %d", c.Schedulers, mostSchedulers)
	case c.monolithic() && c.Schedulers > 1:
		return fmt.Errorf("%d schedulers: %s has 1", c.Schedulers, c.Architecture)
	case c.Apart && c.Schedulers < 2:
		return fmt.Errorf("%d scheduler: services have one of their own, so want at least 2", c.Schedulers)
	case c.Length <= 0:
		return fmt.Errorf("length %s: want more than 0", c.Length)
	}
	for name, j := range map[string]*Jobs{"batch": &c.Batch, "service": &c.Service} {
		if j.Every <= 0 || j.Tasks < 1 || j.Stays <= 0 || !(j.Share > 0 && j.Share <= 0.5) || j.PerJob < 0 || j.PerTask < 0 {
			return fmt.Errorf("%s jobs %+v: want times above 0, at least 1 task, a share of more than 0 and at most 0.5", name, *j)
		}
	}
	return nil
}

func (c *Config) monolithic() bool {
	return c.Architecture == SinglePath || c.Architecture == MultiPath
}

// Kind is what became of the jobs of a kind.
type Kind struct {
	Jobs int `json:"jobs"` // that came
	// Wait is the mean time from when a job came until a scheduler began with it, and Wait90 the
	// 90th percentile.
	Wait   time.Duration `json:"wait"`
	Wait90 time.Duration `json:"wait90"`
	// Abandoned are the jobs that were given up after 1,000 attempts, and Unfinished those
	// of which tasks had no place at the end.
	Abandoned  int `json:"abandoned"`
	Unfinished int `json:"unfinished"`
}

// Result is what an experiment gave.
type Result struct {
	Batch   Kind `json:"batch"`
	Service Kind `json:"service"`
	// Busy is the share of the time in which a scheduler decides, in the mean of all; Busiest
	// is that of the one that does the most.
	Busy    float64 `json:"busy"`
	Busiest float64 `json:"busiest"`
	// Commits are the transactions that were committed, at least in part, and Conflicts
	// those in which something did not hold: ConflictFraction is the conflicts for each
	// commit, as in the paper.
	Commits          int     `json:"commits"`
	Conflicts        int     `json:"conflicts"`
	ConflictFraction float64 `json:"conflictFraction"`
	// Tasks were placed, and so many decisions about tasks did not hold.
	Tasks         int `json:"tasks"`
	TaskConflicts int `json:"taskConflicts"`
}
