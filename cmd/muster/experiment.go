package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/chart"
	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/placement/experiment"
	"github.com/musterhq/muster/placement/pack"
	"github.com/musterhq/muster/placement/workload"
	"github.com/musterhq/muster/reconciler/checkpoint"
	"github.com/musterhq/muster/reconciler/compact"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/atomicfile"
)

// loadFlags say what is simulated: what is made up, or a trace.
type loadFlags struct {
	made         workload.Config
	nodes, tasks string
	against      string
}

func (f *loadFlags) add(c *cobra.Command, machines int) {
	c.Flags().IntVar(&f.made.Machines, "machines", machines, "machines of a cell that is made up")
	c.Flags().Float64Var(&f.made.Load, "load", workload.DefaultLoad, "what the tasks of such a cell ask for at a time, as a share of its CPU")
	c.Flags().Uint64Var(&f.made.Seed, "seed", 0, "seed of what is made up, or drawn of a trace")
	c.Flags().StringVar(&f.nodes, "nodes", "", "CSV file of the machines of a trace, instead of what is made up")
	c.Flags().StringVar(&f.tasks, "tasks", "", "CSV file of the tasks of a trace")
	c.Flags().StringVar(&f.against, "against", "", "the machines and the jobs of the cell in a `file` that muster checkpoint save wrote, instead of what is made up")
}

// saved reads the checkpoint, and returns nil if none is given. It errs for flags of another load.
func (f *loadFlags) saved(c *cobra.Command) (*checkpoint.Cell, error) {
	if !c.Flags().Changed("against") {
		return nil, nil
	}
	if f.nodes != "" || f.tasks != "" {
		return nil, invalid("leave out one of them", "--against and a trace are given: which is the load?")
	}
	if err := f.onlyMade(c, "a checkpoint"); err != nil {
		return nil, err
	}
	return readCheckpoint(f.against)
}

// onlyMade errs if a flag is given that is of what is made up.
func (f *loadFlags) onlyMade(c *cobra.Command, instead string) error {
	for _, flag := range []string{"machines", "load", "cells"} {
		if c.Flags().Changed(flag) {
			return invalid("leave one of them out", "--%s is of what is made up, and %s is given", flag, instead)
		}
	}
	return nil
}

// cellIn returns the machines of a checkpoint, and its work as if that was placed anew.
func cellIn(saved *checkpoint.Cell) pack.Cell {
	return compact.CellOf(compact.Config{State: saved.State, Machines: saved.Machines, Now: saved.At})
}

// trace reads the trace; it has no machines if none is given.
func (f *loadFlags) trace(c *cobra.Command) (nodes []pack.Node, tasks []pack.Task, err error) {
	if f.nodes == "" && f.tasks == "" {
		if f.made.Load == 0 { // which stands for the default in a workload.Config
			return nil, nil, invalid("leave it out for the default", "--load 0: want more than 0 and at most 2")
		}
		return nil, nil, nil
	}
	if f.nodes == "" || f.tasks == "" {
		return nil, nil, invalid("give both, or neither", "--nodes and --tasks: want a file each")
	}
	if err := f.onlyMade(c, "a trace"); err != nil {
		return nil, nil, err
	}
	err = open("--nodes", f.nodes, func(r io.Reader) (err error) { nodes, err = pack.Nodes(f.nodes, r); return err })
	if err == nil {
		err = open("--tasks", f.tasks, func(r io.Reader) (err error) { tasks, err = pack.Tasks(f.tasks, r); return err })
	}
	if err != nil {
		return nil, nil, invalid("docs/traces.md has the columns", "%w", err)
	}
	return nodes, tasks, nil
}

// experimentFlags say what is tried.
type experimentFlags struct {
	loadFlags
	trials, cells int
	policy, svg   string
	out           *outputFlag
}

func newSimulateExperiment(std stdio) *cobra.Command {
	var f experimentFlags
	var list strings.Builder
	for _, q := range experiment.Questions() {
		screen.Printf(&list, "  %-14s %s\n", q.Name, q.Asks)
	}
	c := &cobra.Command{
		Use:   "experiment NAME",
		Short: "answer a question of Borg's evaluation with muster's placement",
		Long: `Answer a question of Borg's evaluation with muster's placement: what would it cost to
run the work of a cell in another way?

` + list.String() + `
Each of some cells is compacted as it is and in the other way, with 11 orders of machines:
the fewest machines that its work has room on, at the 90th percentile, with the least and the
most. The question about techniques takes the processor time to place all work from empty.

The cells are made up, with many machines of several shapes, production services, batch and
best-effort jobs and heavy tails, or are a trace in the columns that docs/traces.md has, or
the cell in a checkpoint: its machines, and the tasks that its jobs are to have. Of that it is
not known what tasks use, so that the question about reclamation has no answer.
docs/evaluation.md has the results, beside those of the paper.`,
		Example: `  muster simulate experiment segregation
  muster simulate experiment policies --machines 1000 --cells 7 --svg policies.svg
  muster simulate experiment segregation --against local.checkpoint
  muster simulate experiment buckets --nodes nodes.csv --tasks tasks.csv --trials 3 -o json`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: experimentNames(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkChart(f.svg); err != nil {
				return err
			}
			r, err := f.run(cmd, args[0])
			if err != nil {
				return err
			}
			if f.svg != "" {
				if err := writeChart(f.svg, experimentChart(r)); err != nil {
					return err
				}
			}
			if f.out.value == "json" {
				return printJSON(std.out, r)
			}
			_, err = io.WriteString(std.out, experimentText(r, columns(std.out, false)))
			return err
		},
	}
	f.add(c, 200)
	c.Flags().IntVar(&f.trials, "trials", experiment.DefaultTrials, "orders of machines that are tried, or how often a time is taken")
	c.Flags().IntVar(&f.cells, "cells", 5, "cells that are made up, each with a seed of its own")
	c.Flags().StringVar(&f.policy, "policy", string(placement.Hybrid), "of the cells as they are: hybrid, best-fit, worst-fit, dot-product, cosine, random")
	c.Flags().StringVar(&f.svg, "svg", "", "write a plot to this `file`, too")
	f.out = addOutput(c, "text", "json")
	return c
}

func experimentNames() []string {
	var out []string
	for _, q := range experiment.Questions() {
		out = append(out, q.Name)
	}
	return out
}

// experimentHint is where it is said what can be asked.
const experimentHint = "muster simulate experiment --help lists the questions and what they take"

func (f *experimentFlags) run(c *cobra.Command, name string) (*experiment.Result, error) {
	if f.trials < 1 {
		return nil, invalid("how many orders of machines are tried", "--trials %d: want 1 to %d", f.trials, experiment.MaxTrials)
	}
	policy, err := pack.ParsePolicy(f.policy)
	if err != nil {
		return nil, invalid(experimentHint, "--policy: %w", err)
	}
	config := experiment.Config{Name: name, Trials: f.trials, Policy: policy, Clock: processorTime}
	if config.Cells, err = f.load(c, name); err != nil {
		return nil, err
	}
	return computed(c.Context(), func() (*experiment.Result, error) {
		r, err := experiment.Run(config)
		if err != nil {
			return nil, invalid(experimentHint, "%w", err)
		}
		return r, nil
	})
}

// load returns the cells that a question is about.
func (f *experimentFlags) load(c *cobra.Command, name string) ([]experiment.Cell, error) {
	var cell experiment.Cell
	of := "a checkpoint"
	saved, err := f.saved(c)
	if err != nil {
		return nil, err
	}
	if saved != nil {
		cell = experiment.OfCell(saved.Cell, cellIn(saved))
	} else {
		nodes, tasks, err := f.trace(c)
		if err != nil {
			return nil, err
		}
		if nodes == nil {
			cells, err := experiment.Generate(f.made, f.cells)
			if err != nil {
				return nil, invalid(experimentHint, "%w", err)
			}
			return cells, nil
		}
		of = "a trace"
		if cell, err = experiment.OfTrace(nodes, f.tasks, tasks); err != nil {
			return nil, invalid("docs/traces.md has the columns", "%w", err)
		}
	}
	unseeded := func(q experiment.Question) bool { return q.Name == name && !q.Draws }
	if c.Flags().Changed("seed") && slices.ContainsFunc(experiment.Questions(), unseeded) {
		return nil, invalid("leave it out", "--seed: experiment %s of %s draws nothing at random", name, of)
	}
	cell.Seed = f.made.Seed
	return []experiment.Cell{cell}, nil
}

// processorTime is what this process has used of processors: other than the clock it does not
// count what others use.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// checkChart errs if no drawing can be written to a file, which is found out before what is drawn;
// "" is none.
func checkChart(file string) error {
	if file == "" {
		return nil
	}
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		return invalid("name a file in it", "--svg %s: it is a directory", file)
	}
	if info, err := os.Stat(filepath.Dir(file)); err != nil || !info.IsDir() {
		return invalid("create the directory first, or name a file in another one", "--svg %s: %s is no directory", file, filepath.Dir(file))
	}
	return nil
}

// writeChart writes a drawing to a file.
func writeChart(file string, d io.WriterTo) error {
	var b bytes.Buffer
	if _, err := d.WriteTo(&b); err != nil {
		return fmt.Errorf("--svg %s: %w", file, err)
	}
	if err := atomicfile.Write(file, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("--svg: %w", err)
	}
	return nil
}

// experimentText says it in words and a table, in lines of a width.
func experimentText(r *experiment.Result, width int) string {
	var b strings.Builder
	b.WriteString(r.Question + "\n")
	b.WriteString(screen.Wrap("Borg's answer: ", "  ", r.Paper, width))
	how := "compaction"
	if r.Unit == experiment.Seconds {
		how = "processor time to place all work"
	}
	b.WriteString(screen.Wrap("", "  ", fmt.Sprintf("%s, %s: 90th percentile of %s, and the least and the most", r.Policy, how, schema.Count(r.Trials, "trial")), width))
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	result, change := "MACHINES", "MORE"
	if r.Unit == experiment.Seconds {
		result, change = "SECONDS", "TIMES"
	}
	screen.Printf(t, "\nCELL\tWAY\t%s\t%s\n", result, change)
	for i := range r.Cells {
		f := &r.Cells[i]
		screen.Printf(t, "%s\t%s\t%s\t\n", f.Cell, f.As.Name, wayText(r, &f.As))
		for j := range f.Ways {
			w := &f.Ways[j]
			screen.Printf(t, "\t%s\t%s\t%s\n", wayName(w), wayText(r, w), moreText(r, f, w))
		}
	}
	_ = t.Flush() // into memory
	b.WriteString("\n")
	for _, m := range r.Medians {
		if r.Unit == experiment.MoreMachines {
			b.WriteString(screen.Wrap("", "  ", fmt.Sprintf("%s: %+.1f%% machines in the median of %s (%+.1f to %+.1f)", m.Way, m.Value, schema.Count(len(r.Cells), "cell"), m.Min, m.Max), width))
		}
	}
	for i := range r.Cells {
		f := &r.Cells[i]
		if f.Reclaimed != nil {
			b.WriteString(screen.Wrap("", "  ", fmt.Sprintf("%s: %.0f%% of CPU and %.0f%% of RAM that is asked for is reclaimed", f.Cell, f.Reclaimed.CPU, f.Reclaimed.RAM), width))
		}
		for j := range f.Ways {
			if n := f.Ways[j].Tasks; n > 0 {
				b.WriteString(screen.Wrap("", "  ", fmt.Sprintf("%s: %s: by the time of %d of %d tasks", f.Cell, f.Ways[j].Name, n, f.Tasks), width))
			}
		}
	}
	return b.String()
}

func wayName(w *experiment.Way) string {
	if w.Cells > 1 && !strings.HasSuffix(w.Name, " cells") {
		return fmt.Sprintf("%s (%d cells)", w.Name, w.Cells)
	}
	return w.Name
}

func wayText(r *experiment.Result, w *experiment.Way) string {
	if r.Unit == experiment.Seconds {
		return fmt.Sprintf("%.3f (%.3f-%.3f)", w.Value, w.Min, w.Max)
	}
	return fmt.Sprintf("%d (%d-%d)", w.Machines, w.LeastMachines, w.MostMachines)
}

func moreText(r *experiment.Result, f *experiment.Found, w *experiment.Way) string {
	if r.Unit == experiment.Seconds {
		return fmt.Sprintf("%.1f", w.Value/f.As.Value)
	}
	return fmt.Sprintf("%+.1f%% (%+.1f to %+.1f)", w.Value, w.Min, w.Max)
}

// experimentChart draws the values of all cells.
func experimentChart(r *experiment.Result) *chart.Points {
	out := &chart.Points{Title: r.Question, Y: "more machines, %"}
	add := func(way func(f *experiment.Found) *experiment.Way) {
		s := chart.Series{Name: way(&r.Cells[0]).Name}
		for i := range r.Cells {
			// The ends compare trial by trial, and the value percentiles: it may lie beyond them.
			w := way(&r.Cells[i])
			s.Values = append(s.Values, chart.Value{Value: w.Value, Min: min(w.Min, w.Value), Max: max(w.Max, w.Value)})
		}
		out.Series = append(out.Series, s)
	}
	if r.Unit == experiment.Seconds {
		out.Y, out.Log = "seconds of processor time", true
		add(func(f *experiment.Found) *experiment.Way { return &f.As })
	}
	for j := range r.Cells[0].Ways {
		add(func(f *experiment.Found) *experiment.Way { return &f.Ways[j] })
	}
	for i := range r.Cells {
		out.Names = append(out.Names, r.Cells[i].Cell)
	}
	return out
}
