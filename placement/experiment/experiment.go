package experiment

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/placement/pack"
	"github.com/musterhq/muster/placement/workload"
)

// Version is that of the fields of Result: a later one may mean something else by a field.
const Version = 1

// Config says what is tried.
type Config struct {
	Name   string // of a question, see Questions
	Trials int    // orders of machines, or repetitions of what is timed; 0 is 11, as Borg's
	// Policy is that of the cell as it is; "" is placement.Hybrid.
	Policy placement.Policy
	// Cells are tried one by one.
	Cells []Cell
	// Clock says how much time has been used since some moment. What is timed needs it.
	Clock func() time.Duration
}

// Cell is a cell that something is tried with.
type Cell struct {
	Name string
	Seed uint64 // of what is drawn: which jobs go into which smaller cell, on which machines reclamation is measured
	pack.Cell
	lacks [needs]string // what a trace does not say that questions need, in words
}

const (
	// MaxTrials bounds Config.Trials.
	MaxTrials = 1000
	// DefaultTrials are as many as Borg's evaluation has.
	DefaultTrials = 11
)

// Result is what was found. Field names are stable.
type Result struct {
	Version  int    `json:"version"`
	Name     string `json:"name"`
	Question string `json:"question"`
	// Paper is the answer of Borg's evaluation.
	Paper  string           `json:"paper"`
	Unit   Unit             `json:"unit"`
	Policy placement.Policy `json:"policy"`
	Trials int              `json:"trials"`
	Cells  []Found          `json:"cells"`
	// Medians are of the cells, for each way, in order.
	Medians []Median `json:"medians"`
}

// Unit is what Way.Value is in.
type Unit string

// The units.
const (
	MoreMachines Unit = "percent more machines"
	Seconds      Unit = "seconds"
)

// Found is what was found for one cell. Field names are stable.
type Found struct {
	Cell     string `json:"cell"`
	Machines int    `json:"machines"`
	Tasks    int    `json:"tasks"`
	// As is the cell as it is.
	As   Way   `json:"as"`
	Ways []Way `json:"ways"`
	// Reclaimed is the percentage of the CPU and of the RAM that tasks ask for which their
	// machines do not have: these tasks run in what others do not use. Of the question about
	// reclamation only.
	Reclaimed *Reclaimed `json:"reclaimed,omitempty"`
}

// Reclaimed are percentages of what is asked for. Field names are stable.
type Reclaimed struct {
	CPU float64 `json:"cpu"`
	RAM float64 `json:"ram"`
}

// Way is one way to run the work of a cell. Field names are stable.
type Way struct {
	Name string `json:"name"`
	// Cells is in how many cells the work is.
	Cells int `json:"cells,omitempty"`
	// Machines is the 90th percentile of PerTrial, what the cells need together, with the
	// least and the most; left out of what is timed.
	Machines      int   `json:"machines,omitempty"`
	LeastMachines int   `json:"leastMachines,omitempty"`
	MostMachines  int   `json:"mostMachines,omitempty"`
	PerTrial      []int `json:"perTrial,omitempty"`
	// Value compares with the cell as it is, or is a time, with the least and the most of the
	// trials. Of machines it compares 90th percentiles; the ends compare trial by trial.
	Value float64 `json:"value"`
	Min   float64 `json:"min"`
	Max   float64 `json:"max"`
	// Tasks is how many of the tasks were placed for the time, all if it is left out: Value is
	// what as many would take as there are.
	Tasks int `json:"tasks,omitempty"`
}

// Median is the median of the cells. Field names are stable.
type Median struct {
	Way   string  `json:"way"`
	Value float64 `json:"value"`
	Min   float64 `json:"min"` // of the cells' values
	Max   float64 `json:"max"`
}

// errNoClock is said to a caller whose question needs a clock.
var errNoClock = errors.New("what is timed needs a clock")

// Run answers a question. It errs if there is none of that name, if the cells do not have what
// it needs, and if their work has no room on their machines many times over.
func Run(c Config) (*Result, error) {
	i := slices.IndexFunc(questions, func(q question) bool { return q.Name == c.Name })
	switch {
	case i < 0:
		return nil, fmt.Errorf("experiment %q: want one of %s", c.Name, strings.Join(names(), ", "))
	case c.Trials < 0 || c.Trials > MaxTrials:
		return nil, fmt.Errorf("trials %d: want 1 to %d", c.Trials, MaxTrials)
	case len(c.Cells) == 0:
		return nil, errors.New("0 cells: want at least one")
	}
	q := &questions[i]
	for i := range c.Cells {
		if lacks := c.Cells[i].lacks[q.needs]; lacks != "" {
			return nil, fmt.Errorf("%s: experiment %s needs it", lacks, c.Name)
		}
	}
	c.Trials, c.Policy = cmp.Or(c.Trials, DefaultTrials), cmp.Or(c.Policy, placement.Hybrid)
	out := &Result{Version: Version, Name: c.Name, Question: q.Asks, Paper: q.Paper, Unit: MoreMachines, Policy: c.Policy, Trials: c.Trials}
	var err error
	if q.ways == nil {
		out.Unit = Seconds
		out.Cells, err = timed(&c)
	} else {
		out.Cells, err = packed(&c, q)
	}
	if err != nil {
		return nil, err
	}
	out.Medians = medians(out.Cells)
	return out, nil
}

// packed compacts all cells as they are, and in each way.
func packed(c *Config, q *question) ([]Found, error) {
	out, errs := make([]Found, len(c.Cells)), make([]error, len(c.Cells))
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wait sync.WaitGroup
	for i := range c.Cells {
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			out[i], errs[i] = compare(c, q, &c.Cells[i])
		})
	}
	wait.Wait()
	return out, errors.Join(errs...)
}

// compare compacts a cell as it is, and in each way.
func compare(c *Config, q *question, cell *Cell) (Found, error) {
	out := Found{Cell: cell.Name, Machines: len(cell.Machines), Tasks: len(cell.Asks)}
	options := placement.Options{Policy: c.Policy}
	var err error
	as := way{name: "as it is", options: options, cells: []pack.Cell{cell.Cell}}
	if out.As, err = as.compact(c.Trials); err != nil {
		return out, fmt.Errorf("%s: %w", cell.Name, err)
	}
	for _, w := range q.ways(cell, options) {
		found, err := w.compact(c.Trials)
		if err != nil {
			return out, fmt.Errorf("%s: %s: %w", cell.Name, w.name, err)
		}
		more := func(n, than int) float64 { return 100 * (float64(n)/float64(than) - 1) }
		found.Value = more(found.Machines, out.As.Machines)
		for i, n := range found.PerTrial {
			m := more(n, out.As.PerTrial[i])
			if i == 0 {
				found.Min, found.Max = m, m
			}
			found.Min, found.Max = min(found.Min, m), max(found.Max, m)
		}
		out.Ways = append(out.Ways, found)
	}
	if q.reclaims {
		out.Reclaimed = reclaimed(cell, out.As.Machines, options)
	}
	return out, nil
}

// way is one way to run the work of a cell: in these cells.
type way struct {
	name    string
	options placement.Options
	cells   []pack.Cell
}

// compact finds how many machines the cells need together, for each trial.
func (w *way) compact(trials int) (Way, error) {
	out := Way{Name: w.name, Cells: len(w.cells), PerTrial: make([]int, trials)}
	for i, cell := range w.cells {
		// Cells that draw machines in the same order would be unlucky together.
		cell.Order = uint64(i)
		found, err := pack.Compact(cell, trials, w.options)
		if err != nil {
			return out, err
		}
		for trial, n := range found.PerSeed {
			out.PerTrial[trial] += n
		}
	}
	sorted := slices.Sorted(slices.Values(out.PerTrial))
	out.LeastMachines, out.MostMachines, out.Machines = sorted[0], sorted[len(sorted)-1], sorted[(9*len(sorted)+9)/10-1]
	return out, nil
}

// medians returns the medians of what was found for cells, of each way.
func medians(cells []Found) []Median {
	var out []Median
	for i, w := range cells[0].Ways {
		var values []float64
		for j := range cells {
			values = append(values, cells[j].Ways[i].Value)
		}
		slices.Sort(values)
		n := len(values)
		out = append(out, Median{Way: w.Name, Value: (values[(n-1)/2] + values[n/2]) / 2, Min: values[0], Max: values[n-1]})
	}
	return out
}

// Generate makes up cells, each with a seed of its own, from the Config's on.
func Generate(c workload.Config, cells int) ([]Cell, error) {
	if cells < 1 || cells > maxCells {
		return nil, fmt.Errorf("cells %d: want 1 to %d", cells, maxCells)
	}
	var out []Cell
	for i := range cells {
		w, err := workload.New(c)
		if err != nil {
			return nil, err
		}
		cell := Cell{Name: fmt.Sprintf("generated-%d", i+1), Seed: c.Seed}
		cell.Machines = w.Machines
		cell.Asks, cell.Reserved = w.Cell()
		out = append(out, cell)
		c.Seed++
	}
	return out, nil
}

// OfCell returns a cell of which it is not known what its tasks use.
func OfCell(name string, cell pack.Cell) Cell {
	out := Cell{Name: name, Cell: cell}
	out.lacks[usage] = "it is not known of the tasks of cell " + name + " what they use"
	return out
}

// OfTrace returns a trace as a cell. The name is that of the file of tasks, for errors.
func OfTrace(nodes []pack.Node, tasksFile string, tasks []pack.Task) (Cell, error) {
	out := Cell{Name: "trace"}
	out.Cell, tasks = pack.WorkOf(nodes, tasks)
	if len(tasks) == 0 {
		return out, fmt.Errorf("%s: no task is left but those whose phase is Failed", tasksFile)
	}
	for i := range tasks {
		t := &tasks[i]
		say := func(n need, lacks bool, what string) {
			if lacks && out.lacks[n] == "" {
				out.lacks[n] = fmt.Sprintf("%s:%d: task %s has no %s", tasksFile, t.Line, t.Name, what)
			}
		}
		say(classes, !t.Ranked, "priority and no qos")
		say(users, t.User == "", "user")
		say(usage, !t.Ranked, "priority and no qos")
		say(usage, !t.Measured, "cpu_used_milli and memory_used_mib")
	}
	return out, nil
}

// maxCells bounds how many cells are made up.
const maxCells = 100
