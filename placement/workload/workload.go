package workload

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/placement/reserve"
	"github.com/musterhq/muster/schema"
)

// Config says what is made up.
type Config struct {
	Seed     uint64
	Machines int // 1 to MaxMachines
	// Load is what the work that runs at a time asks for, as a share of the cell's CPU:
	// more than 0 and at most 2; 0 is DefaultLoad.
	Load float64
	// Span is for how long jobs arrive after what is there at the beginning; 0 for none.
	Span time.Duration
}

const (
	// MaxMachines is the most machines that are made up.
	MaxMachines = 20_000
	// MaxSpan is the longest time for which jobs are.
	MaxSpan = 31 * 24 * time.Hour
	// DefaultLoad is the load without another: a cell that is well used.
	DefaultLoad = 0.9
)

// Class is a kind of work.
type Class string

// The classes.
const (
	// Service is long-running production work: it is there from the beginning, and does
	// not end.
	Service Class = "service"
	// Batch is work of band batch that runs for hours.
	Batch Class = "batch"
	// BestEffort is work of band free that runs for hours.
	BestEffort Class = "best-effort"
	// Short is work of band free that runs for a minute or so: most jobs, and next to
	// nothing of what is used.
	Short Class = "short"
)

// Job is a job: equal tasks of a user that arrive together.
type Job struct {
	Name     schema.JobName
	Class    Class
	Priority schema.Priority
	Tasks    int
	Limit    schema.Resources // that each task asks for
	// Usage is what each task uses at most in a while: what the cell would estimate.
	Usage schema.Resources
	// Steady says that each task uses Usage all the time, as of a trace that says nothing else.
	Steady bool
	// Constraints are on attributes that machines of a Workload have.
	Constraints []placement.Constraint
	// Devices are asked for by traces and by the jobs of a cell alone; FirstOf, their alternatives, by
	// the latter.
	Devices []placement.DeviceAsk
	FirstOf [][]placement.DeviceAsk
	Arrives time.Duration // since the beginning, 0 of what was there before
	Lasts   time.Duration // from its start; 0 is without end
}

// Work is what the job asks for until it ends, or for a span, in core-hours.
func (j *Job) Work(span time.Duration) float64 {
	lasts := j.Lasts
	if lasts == 0 || lasts > span-j.Arrives {
		lasts = span - j.Arrives
	}
	return float64(j.Tasks) * float64(j.Limit.CPUMilli) / 1000 * lasts.Hours()
}

// Workload is what was made up.
type Workload struct {
	Machines []placement.Machine
	Jobs     []Job // in the order in which they arrive
}

// New makes up a workload. It errs if the Config is out of its bounds.
func New(c Config) (*Workload, error) {
	switch {
	case c.Machines < 1 || c.Machines > MaxMachines:
		return nil, fmt.Errorf("%d machines: want 1 to %d", c.Machines, MaxMachines)
	case !(c.Load >= 0 && c.Load <= 2): // so that NaN is refused
		return nil, fmt.Errorf("load %g: want more than 0 and at most 2", c.Load)
	case c.Span < 0 || c.Span > MaxSpan:
		return nil, fmt.Errorf("span %s: want 0 to %s", c.Span, MaxSpan)
	}
	if c.Load == 0 {
		c.Load = DefaultLoad
	}
	g := newGenerator(c)
	return &Workload{Machines: g.machines, Jobs: g.jobs()}, nil
}

// Cell returns the jobs of the beginning as asks, in the order of their jobs, and what each is
// estimated to need: its usage and a margin. So Borg's cells reserve (Borg §5.5).
func (w *Workload) Cell() (asks []placement.Ask, reserved []schema.Resources) {
	for i := range w.Jobs {
		j := &w.Jobs[i]
		if j.Arrives > 0 {
			break
		}
		for index := range j.Tasks {
			asks = append(asks, placement.Ask{Name: j.Name.Task(index), Priority: j.Priority, Limit: j.Limit, Constraints: j.Constraints})
			reserved = append(reserved, reserve.Of(j.Limit, j.Usage))
		}
	}
	return asks, reserved
}
