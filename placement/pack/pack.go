package pack

import (
	"fmt"
	"math"
	"slices"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// Measure is what is measured.
type Measure string

// The measures.
const (
	// Compaction is Borg's: machines are removed in random order until the
	// work no longer fits; what is left at the last moment it did is the
	// result (Verma et al., "Evaluating job packing in warehouse-scale
	// computing", 2014).
	Compaction Measure = "compaction"
	// GPUAt130 is the FGD paper's: tasks that ask for 130% of the GPUs arrive
	// one by one, those that do not fit are skipped, and the result is the
	// percentage of all GPUs that is allocated.
	GPUAt130 Measure = "gpu-at-130"
	// ChurnWait is about a cell that has been running for long: tasks come and go, and
	// the result is how long those wait that want most of a machine.
	ChurnWait Measure = "churn"
)

// GPUs says how GPUs are counted.
type GPUs string

// The ways to count GPUs.
const (
	GPUDevices GPUs = "devices" // each for itself, shares of one included
	GPUScalar  GPUs = "scalar"  // one amount for the machine
	GPUIgnored GPUs = "ignored" // not at all
)

// Config is what to measure.
type Config struct {
	Nodes   []Node
	Tasks   []Task
	Policy  placement.Policy
	Measure Measure
	GPUs    GPUs // "" means GPUDevices
	Seeds   int  // 0 means 11 for compaction, as Borg did, 10 for gpu-at-130, 3 for churn
	// Load is what the tasks of churn ask for together, on average, as a share of the
	// cell, of the dimension that is asked for most; 0 means 0.9.
	Load float64
	// Fill decides the first pass of churn, over what is there at the start, so that policies
	// are compared from the same cell; "" means Policy. With FillOneByOne the order in which that
	// was drawn counts, see placement.Options.OneByOne.
	Fill         placement.Policy
	FillOneByOne bool
	// Life is how the tasks of churn come and go; the zero value is the usual.
	Life Life
	// FirstSeed is the first of the seeds of churn; the others follow it.
	FirstSeed uint64
	// Schedulers is how many share the tasks, each planning on a fork; 0 means 1.
	Schedulers int
	// Options are those of placement; Policy is set from the field above.
	Options placement.Options
	// AllPhases takes tasks whose phase is Failed into compaction too.
	AllPhases bool
}

// Version is that of the fields of Result: a later one may mean something else by a field.
const Version = 1

// Result is what was measured. Value is the 90th percentile of PerSeed for
// compaction (machines, less is better), the mean for gpu-at-130 (percent, more is
// better) and for churn (seconds, less is better).
type Result struct {
	Version   int              `json:"version"`
	Measure   Measure          `json:"measure"`
	Policy    placement.Policy `json:"policy"`
	GPUs      GPUs             `json:"gpus"`
	Machines  int              `json:"machines"` // in the trace
	Tasks     int              `json:"tasks"`    // that were to be placed, per seed
	Pending   int              `json:"pendingAllowed"`
	Seeds     int              `json:"seeds"`
	Value     float64          `json:"value"`
	Deviation float64          `json:"deviation"` // standard, over the seeds
	PerSeed   []float64        `json:"perSeed"`
	// Schedulers shared the tasks, and so many of their decisions, over all seeds, did
	// not hold when they were committed and were made again; of compaction those on
	// all machines count.
	Schedulers int `json:"schedulers"`
	Conflicts  int `json:"conflicts"`
	// Overflowed counts the seeds of compaction for which all machines were
	// too few; they stand in PerSeed as one machine more than there are.
	Overflowed int `json:"overflowed"`
	// Churn is set by that measure only.
	Churn *Churn `json:"churn,omitempty"`
}

// Run measures. It errs when the configuration makes no sense.
func Run(c Config) (Result, error) {
	if c.Policy == "" {
		c.Policy = placement.Hybrid
	}
	if c.GPUs == "" {
		c.GPUs = GPUDevices
	}
	if _, err := ParsePolicy(string(c.Policy)); err != nil {
		return Result{}, err
	}
	switch {
	case !slices.Contains([]GPUs{GPUDevices, GPUScalar, GPUIgnored}, c.GPUs):
		return Result{}, fmt.Errorf("gpus %q: want devices, scalar or ignored", c.GPUs)
	case len(c.Nodes) == 0 || len(c.Tasks) == 0:
		return Result{}, fmt.Errorf("%d nodes and %d tasks: want at least one of each", len(c.Nodes), len(c.Tasks))
	case c.Seeds < 0:
		return Result{}, fmt.Errorf("seeds %d: want at least 1", c.Seeds)
	case c.Schedulers < 0 || c.Schedulers > maxSchedulers:
		return Result{}, fmt.Errorf("schedulers %d: want 1 to %d", c.Schedulers, maxSchedulers)
	}
	if c.Fill != "" {
		if _, err := ParsePolicy(string(c.Fill)); err != nil {
			return Result{}, fmt.Errorf("fill: %w", err)
		}
	}
	if err := c.checkLoad(); err != nil {
		return Result{}, err
	}
	c.Schedulers = orElse(c.Schedulers, 1)
	c.Options.Policy = c.Policy
	var r Result
	var err error
	switch c.Measure {
	case Compaction:
		c.Seeds = orElse(c.Seeds, 11)
		if r, err = compaction(c); err == nil {
			r.Value = percentile90(r.PerSeed)
		}
	case GPUAt130:
		c.Seeds = orElse(c.Seeds, 10)
		if r, err = gpuAt130(c); err == nil {
			r.Value = mean(r.PerSeed)
		}
	case ChurnWait:
		c.Seeds = orElse(c.Seeds, 3)
		if r, err = churn(c); err == nil {
			r.Value = mean(r.PerSeed)
		}
	default:
		err = fmt.Errorf("measure %q: want compaction, gpu-at-130 or churn", c.Measure)
	}
	if err != nil {
		return Result{}, err
	}
	r.Version, r.Measure, r.Policy, r.GPUs, r.Machines, r.Seeds = Version, c.Measure, c.Policy, c.GPUs, len(c.Nodes), c.Seeds
	r.Schedulers, r.Deviation = c.Schedulers, deviation(r.PerSeed)
	return r, nil
}

// policies are those that can be measured.
var policies = []placement.Policy{
	placement.Hybrid, placement.BestFit, placement.WorstFit, placement.DotProduct, placement.Cosine, placement.Random,
}

// ParsePolicy returns the policy of a name. It errs if there is none.
func ParsePolicy(name string) (placement.Policy, error) {
	if p := placement.Policy(name); slices.Contains(policies, p) {
		return p, nil
	}
	return "", fmt.Errorf("policy %q: want hybrid, best-fit, worst-fit, dot-product, cosine or random", name)
}

// checkLoad fills in the load of churn, which no other measure has.
func (c *Config) checkLoad() error {
	switch {
	case c.Measure != ChurnWait && c.Load != 0:
		return fmt.Errorf("load %g: only measure churn has one", c.Load)
	case c.Measure != ChurnWait:
		return nil
	case c.Schedulers > 1:
		return fmt.Errorf("schedulers %d: measure churn has one", c.Schedulers)
	case c.Load == 0:
		c.Load = 0.9
	case !(c.Load > 0 && c.Load <= 2): // so that NaN is refused
		return fmt.Errorf("load %g: want more than 0 and at most 2", c.Load)
	}
	return nil
}

func orElse(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

// maxSchedulers bounds Config.Schedulers: each plans on a fork of its own.
const maxSchedulers = 64

const mebibyte = 1 << 20

// gpuKind is the kind of device that the traces know.
const gpuKind = "gpu"

// machines returns the trace's machines for placement.
func machines(nodes []Node, gpus GPUs) []placement.Machine {
	out := make([]placement.Machine, 0, len(nodes))
	for _, n := range nodes {
		m := placement.Machine{
			Name: n.Name, Up: true,
			Capacity: schema.Resources{CPUMilli: n.CPUMilli, RAMBytes: n.RAMMiB * mebibyte},
		}
		switch {
		case n.GPUs > 0 && gpus == GPUDevices:
			m.Devices = []placement.Device{{Kind: gpuKind, Model: n.Model, Count: n.GPUs}}
		case gpus == GPUScalar:
			// The third scalar dimension is free: the traces know no disk.
			m.Capacity.DiskBytes = int64(n.GPUs) * placement.DeviceMilli
		}
		out = append(out, m)
	}
	return out
}

// asks returns the trace's tasks for placement, in their order: each is a job
// of its own, of one user, and the names sort like the list.
func asks(tasks []Task, gpus GPUs) []placement.Ask {
	out := make([]placement.Ask, 0, len(tasks))
	for i, t := range tasks {
		a := placement.Ask{
			Name:     schema.JobName{Cell: "trace", User: "trace", Job: fmt.Sprintf("t%08d", i)}.Task(0),
			Priority: 100,
			Limit:    schema.Resources{CPUMilli: t.CPUMilli, RAMBytes: t.RAMMiB * mebibyte},
		}
		switch {
		case t.GPUs > 0 && gpus == GPUDevices:
			a.Devices = []placement.DeviceAsk{{Kind: gpuKind, Models: t.Models, Count: t.GPUs, Milli: t.GPUMilli}}
		case gpus == GPUScalar:
			a.Limit.DiskBytes = t.gpuMilli()
		}
		out = append(out, a)
	}
	return out
}

func percentile90(v []float64) float64 {
	sorted := slices.Sorted(slices.Values(v))
	return sorted[int(math.Ceil(0.9*float64(len(sorted))))-1]
}

func mean(v []float64) float64 {
	var sum float64
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

func deviation(v []float64) float64 {
	m := mean(v)
	var sum float64
	for _, x := range v {
		sum += (x - m) * (x - m)
	}
	return math.Sqrt(sum / float64(len(v)))
}
