package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/chart"
	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/placement/pack"
	"github.com/musterhq/muster/placement/workload"
	"github.com/musterhq/muster/reconciler/fastforward"
	"github.com/musterhq/muster/schema"
)

// traceFlags say what is played.
type traceFlags struct {
	loadFlags
	play     fastforward.Config
	compare  []string
	with     string
	svg      string
	policies []string // that are played; "" is the master's own
	out      *outputFlag
}

// played is what `muster simulate trace -o json` prints. Field names are stable.
type played struct {
	Version int         `json:"version"`
	Runs    []playedRun `json:"runs"`
}

// playedRun is one way in which the load was played.
type playedRun struct {
	Name string `json:"name"` // a policy, or the program that played it
	*fastforward.Result
}

// usesAny reports whether anything is used of what tasks ask for: it is not known of a checkpoint.
func (p *played) usesAny() bool {
	return slices.ContainsFunc(p.Runs, func(r playedRun) bool { return r.Mean.UsedCPU+r.Mean.UsedRAM > 0 })
}

func newSimulateTrace(std stdio) *cobra.Command {
	var f traceFlags
	c := &cobra.Command{
		Use:   "trace",
		Short: "play a day of a cell in fast-forward: arrivals, ends, failures of machines",
		Long: `Play a day of a cell in fast-forward: jobs arrive and end, machines fail and come back.
The code is the master's, on simulated machines, in virtual time. What is printed is what is
allocated and used, what runs and is pending, and what is evicted, over time.

The load is made up, as muster simulate experiment does it, or is a trace in the columns
that docs/traces.md has, with creation_time and deletion_time. There is no quota, images are
there, an evicted task begins anew, and running tasks are not moved to make room.

With --against it is the cell in a checkpoint: its machines, but what system jobs have of them,
and the tasks that its other jobs are to have, with what they ask for and their constraints. All are
placed anew at the beginning and run without end, so that what happens is failures of machines.
Left out are ports and networks, preferences, alternatives (anyOf), taints, spread, gangs, what jobs
want of each other, and jobs inside allocs. What tasks use is not known, so that there is no
--reclaim.

With --reclaim the cell holds back for tasks what they are estimated to need, and places those
below production in the rest of what others ask for: production is still placed by what it asks
for, and preempts them. An estimate is all that is asked for in the first 5 minutes, then comes
down to what is used and a quarter of it, half of the way in 10 minutes, and grows at once. The
master of this release makes none: this is what it would be worth. What tasks use is as docs/evaluation.md
says, or in the trace.

--compare plays the same load with several policies, and --with with another release: its
program, which must have this command, is run. All are in one table.`,
		Example: `  muster simulate trace
  muster simulate trace --machines 200 --load 1.1 --failures 10 --svg day.svg
  muster simulate trace --load 1.2 --reclaim
  muster simulate trace --against local.checkpoint --failures 20 --compare hybrid,worst-fit
  muster simulate trace --until 6h --compare hybrid,best-fit,worst-fit
  muster simulate trace --nodes nodes.csv --tasks tasks.csv --with ./muster-0.9`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			out, err := f.run(cmd)
			if err != nil {
				return err
			}
			if f.svg != "" {
				if err := writeChart(f.svg, out.chart()); err != nil {
					return err
				}
			}
			if f.out.value == "json" {
				return printJSON(std.out, out)
			}
			_, err = io.WriteString(std.out, out.text(columns(std.out, false)))
			return err
		},
	}
	f.flags(c)
	return c
}

// flags adds the flags of the command.
func (f *traceFlags) flags(c *cobra.Command) {
	f.add(c, 60)
	c.Flags().DurationVar(&f.play.Span, "until", 24*time.Hour, "for how long the cell is played")
	c.Flags().Float64Var(&f.play.Failures, "failures", 1, "how often a machine fails in 30 days, on average")
	c.Flags().DurationVar(&f.play.Down, "down", 30*time.Minute, "for how long a machine that failed is gone")
	c.Flags().BoolVar(&f.play.Reclaim, "reclaim", false, "place tasks below production in what others ask for and do not use")
	c.Flags().StringSliceVar(&f.compare, "compare", nil, "play the load with each of these policies: hybrid, best-fit, worst-fit, dot-product, cosine, random")
	c.Flags().StringVar(&f.with, "with", "", "play the load with this other `program` muster, too")
	c.Flags().StringVar(&f.svg, "svg", "", "write a plot to this `file`, too")
	f.out = addOutput(c, "text", "json")
}

// check errs for what would be missed when the load has been played.
func (f *traceFlags) check() error {
	if f.with != "" {
		if _, err := exec.LookPath(f.with); err != nil {
			return invalid("name a program muster, such as ./muster-0.9", "--with %s: %w", f.with, errors.Unwrap(err))
		}
	}
	return checkChart(f.svg)
}

// traceHint is where it is said what flags take.
const traceHint = "muster simulate trace --help has the values of the flags"

func (f *traceFlags) run(c *cobra.Command) (*played, error) {
	if f.play.Down <= 0 {
		return nil, invalid(traceHint, "--down %s: want more than 0", f.play.Down)
	}
	for _, name := range f.compare {
		if _, err := pack.ParsePolicy(name); err != nil {
			return nil, invalid(traceHint, "--compare: %w", err)
		}
	}
	if f.against != "" && f.play.Reclaim {
		return nil, invalid(traceHint, "--reclaim with --against: it is not known what the tasks of a checkpoint use")
	}
	if err := f.load(c); err != nil {
		return nil, err
	}
	f.play.Seed = f.made.Seed
	out := &played{Version: fastforward.Version}
	if f.policies = f.compare; len(f.policies) == 0 {
		f.policies = []string{""}
	}
	for _, policy := range f.policies {
		f.play.Policy = policy
		play := f.play
		r, err := computed(c.Context(), func() (*fastforward.Result, error) {
			play.Parallel = workers()
			r, err := fastforward.Play(play)
			if err != nil {
				return nil, invalid(traceHint, "%w", err)
			}
			return r, nil
		})
		if err != nil {
			return nil, err
		}
		name := policy
		if name == "" {
			name = "muster " + version
		}
		out.Runs = append(out.Runs, playedRun{name, r})
	}
	if f.with != "" {
		other, err := f.other(c.Context(), out.Runs[0].Result)
		if err != nil {
			return nil, err
		}
		out.Runs = append(out.Runs, other...)
	}
	return out, nil
}

// load takes what is played.
func (f *traceFlags) load(c *cobra.Command) error {
	saved, err := f.saved(c)
	if err != nil {
		return err
	}
	if saved != nil {
		if f.play.Work, err = pack.LoadOfCell(cellIn(saved)); err != nil {
			return invalid("a cell is played that has machines and jobs", "checkpoint %s: %w", f.against, err)
		}
		return nil
	}
	nodes, tasks, err := f.trace(c)
	if err != nil {
		return err
	}
	if nodes != nil {
		if f.play.Work, err = pack.LoadOf(nodes, f.tasks, tasks); err != nil {
			return invalid("docs/traces.md has the columns", "%w", err)
		}
		return nil
	}
	f.made.Span = max(f.play.Span, 0)
	if f.play.Work, err = workload.New(f.made); err != nil {
		return invalid(traceHint, "%w", err)
	}
	return nil
}

// other has another program play the load that this one has played first.
func (f *traceFlags) other(ctx context.Context, first *fastforward.Result) ([]playedRun, error) {
	args := []string{
		"simulate", "trace", "-o", "json", "--until", f.play.Span.String(), "--down", f.play.Down.String(),
		"--failures", strconv.FormatFloat(f.play.Failures, 'g', -1, 64), "--seed", strconv.FormatUint(f.made.Seed, 10),
	}
	if f.against != "" {
		args = append(args, "--against", f.against)
	} else if f.nodes != "" {
		args = append(args, "--nodes", f.nodes, "--tasks", f.tasks)
	} else {
		args = append(args, "--machines", strconv.Itoa(f.made.Machines), "--load", strconv.FormatFloat(f.made.Load, 'g', -1, 64))
	}
	if f.play.Reclaim {
		args = append(args, "--reclaim")
	}
	if len(f.compare) > 0 {
		args = append(args, "--compare", strings.Join(f.compare, ","))
	}
	var said, complaint bytes.Buffer
	run := exec.CommandContext(ctx, f.with, args...)
	run.Stdout, run.Stderr, run.Env = &said, &complaint, os.Environ()
	if err := run.Run(); ctx.Err() != nil {
		return nil, endedEarly(ctx)
	} else if err != nil {
		err = fmt.Errorf("--with %s: %w", f.with, err)
		if why := strings.TrimSpace(complaint.String()); why != "" {
			err = fmt.Errorf("%w: %s", err, why)
		}
		return nil, &failure{code: exitCouldNot, err: err, hint: "want the path of a program muster that has simulate trace"}
	}
	var out played
	if err := json.Unmarshal(said.Bytes(), &out); err != nil {
		return nil, fmt.Errorf("--with %s: what it prints is not of muster simulate trace: %w", f.with, err)
	}
	if out.Version != fastforward.Version || len(out.Runs) == 0 {
		return nil, fmt.Errorf("--with %s: it prints version %d of its results, and this program knows %d", f.with, out.Version, fastforward.Version)
	}
	for i := range out.Runs {
		r := &out.Runs[i]
		if r.Result == nil {
			return nil, fmt.Errorf("--with %s: run %d has no result", f.with, i)
		}
		if ours := f.play.Work; r.Machines != len(ours.Machines) {
			return nil, fmt.Errorf("--with %s: it played %s, and this program %d: the load is not the same", f.with, schema.Count(r.Machines, "machine"), len(ours.Machines))
		}
		if err := sameLoad(first, r.Result); err != nil {
			return nil, &failure{code: exitCouldNot, err: fmt.Errorf("--with %s: %w", f.with, err), hint: "give --nodes and --tasks: a trace that both programs read in the same way"}
		}
		r.Name = "with " + r.Name
	}
	return out.Runs, nil
}

// sameLoad errs if another program has played another load than this one. A release before there
// was a digest of it says none.
func sameLoad(ours, theirs *fastforward.Result) error {
	switch {
	case theirs.Jobs != ours.Jobs || theirs.Tasks != ours.Tasks || theirs.Failures != ours.Failures:
		return fmt.Errorf("it played %s with %s and %s, and this program %d with %d and %d: the load is not the same",
			schema.Count(theirs.Jobs, "job"), schema.Count(theirs.Tasks, "task"), schema.Count(theirs.Failures, "failure"), ours.Jobs, ours.Tasks, ours.Failures)
	case theirs.Load != "" && theirs.Load != ours.Load:
		return errors.New("its jobs or machines have other sizes or times than those of this program: the load is not the same")
	}
	return nil
}

// text says it in tables, in lines of a width.
func (p *played) text(width int) string {
	var b strings.Builder
	for i := range p.Runs {
		r := p.Runs[i].Result
		b.WriteString(screen.Wrap("", "  ", fmt.Sprintf("%s: %s of %s, %s: %s with %s arrived", p.Runs[i].Name, time.Duration(r.Seconds*float64(time.Second)),
			schema.Count(r.Machines, "machine"), schema.Count(r.Failures, "failure"), schema.Count(r.Jobs, "job"), schema.Count(r.Tasks, "task")), width))
	}
	t := tabwriter.NewWriter(&b, 0, 0, gap, ' ', 0)
	if len(p.Runs) == 1 {
		screen.Printf(t, "\nHOURS\tUP\tCPU\tUSED\tRAM\tUSED\tRECLAIMED\tRUNNING\tPENDING\tEVICTED\n")
		s := p.Runs[0].Samples
		const lines = 24
		evicted := 0
		for i := range s {
			evicted += s[i].Evicted
			if (i+1)*lines%len(s) < lines {
				screen.Printf(t, "%.1f\t%d\t%.0f%%\t%.0f%%\t%.0f%%\t%.0f%%\t%.0f%%\t%d\t%d\t%d\n", s[i].Seconds/3600, s[i].Up, s[i].CPU, s[i].UsedCPU, s[i].RAM, s[i].UsedRAM, s[i].ReclaimedCPU, s[i].Running, s[i].Pending, evicted)
				evicted = 0
			}
		}
	}
	_ = t.Flush() // into memory
	writeBlocks(&b, p.compared(), width)
	return b.String()
}

// gap is how many spaces are between two columns.
const gap = 2

// writeBlocks writes a table with the first of its columns in front of as many of the others as a
// line of a width has room for, and again in front of those that follow; 0 is any width.
func writeBlocks(b io.Writer, rows [][]string, width int) {
	widest := func(column int) (most int) {
		for _, row := range rows {
			most = max(most, screen.Cells(row[column]))
		}
		return most
	}
	label, columns := widest(0), len(rows[0])
	for from := 1; from < columns; {
		to, used := from, label
		for to < columns && (to == from || width <= 0 || used+gap+widest(to) <= width) {
			used += gap + widest(to)
			to++
		}
		t := tabwriter.NewWriter(b, 0, 0, gap, ' ', 0)
		for _, row := range rows {
			screen.Printf(t, "%s", row[0])
			for _, cell := range row[from:to] {
				screen.Printf(t, "\t%s", cell)
			}
			screen.Printf(t, "\n")
		}
		screen.Printf(b, "\n")
		_ = t.Flush() // into memory
		from = to
	}
}

// compared returns a table with a column for each run, its head first.
func (p *played) compared() (rows [][]string) {
	row := func(name string, of func(*fastforward.Result) string) {
		cells := []string{name}
		for i := range p.Runs {
			cells = append(cells, of(p.Runs[i].Result))
		}
		rows = append(rows, cells)
	}
	heads := []string{"MEAN"}
	for i := range p.Runs {
		heads = append(heads, p.Runs[i].Name)
	}
	rows = append(rows, heads)
	percent := func(v float64) string { return fmt.Sprintf("%.1f%%", v) }
	row("CPU allocated", func(r *fastforward.Result) string { return percent(r.Mean.CPU) })
	if p.usesAny() {
		row("CPU used", func(r *fastforward.Result) string { return percent(r.Mean.UsedCPU) })
	}
	row("RAM allocated", func(r *fastforward.Result) string { return percent(r.Mean.RAM) })
	if p.usesAny() {
		row("RAM used", func(r *fastforward.Result) string { return percent(r.Mean.UsedRAM) })
	}
	row("CPU reclaimed", func(r *fastforward.Result) string { return percent(r.Mean.ReclaimedCPU) })
	row("RAM reclaimed", func(r *fastforward.Result) string { return percent(r.Mean.ReclaimedRAM) })
	row("tasks running", func(r *fastforward.Result) string { return strconv.Itoa(r.Mean.Running) })
	row("tasks pending", func(r *fastforward.Result) string { return strconv.Itoa(r.Mean.Pending) })
	row("tasks finished", func(r *fastforward.Result) string { return strconv.Itoa(r.Finished) })
	causes := map[schema.CauseKind]bool{}
	for i := range p.Runs {
		for cause := range p.Runs[i].Evictions {
			causes[cause] = true
		}
	}
	for _, cause := range slices.Sorted(maps.Keys(causes)) {
		row("evicted: "+string(cause), func(r *fastforward.Result) string { return strconv.Itoa(r.Evictions[cause]) })
	}
	for _, band := range schema.Bands() {
		wait := func(r *fastforward.Result) *fastforward.Wait {
			if i := slices.IndexFunc(r.Waits, func(w fastforward.Wait) bool { return w.Band == band }); i >= 0 {
				return &r.Waits[i]
			}
			return &fastforward.Wait{}
		}
		if !slices.ContainsFunc(p.Runs, func(r playedRun) bool { return wait(r.Result).Band != "" }) {
			continue
		}
		row("wait, "+string(band)+": p50, p99", func(r *fastforward.Result) string {
			return fmt.Sprintf("%.0f s, %.0f s", wait(r).P50, wait(r).P99)
		})
		row("never started, "+string(band), func(r *fastforward.Result) string { return strconv.Itoa(wait(r).Pending) })
	}
	return rows
}

// chart draws what was seen over time.
func (p *played) chart() *chart.Lines {
	out := &chart.Lines{Title: "a cell in fast-forward"}
	panel := func(y string, of func(*fastforward.Sample) float64) {
		d := chart.Panel{Y: y}
		for i := range p.Runs {
			l := chart.Line{Name: p.Runs[i].Name}
			for j := range p.Runs[i].Samples {
				l.Values = append(l.Values, of(&p.Runs[i].Samples[j]))
			}
			d.Lines = append(d.Lines, l)
		}
		out.Panels = append(out.Panels, d)
	}
	panel("CPU allocated, %", func(s *fastforward.Sample) float64 { return s.CPU })
	panel("CPU used, %", func(s *fastforward.Sample) float64 { return s.UsedCPU })
	panel("CPU reclaimed, %", func(s *fastforward.Sample) float64 { return s.ReclaimedCPU })
	panel("pending tasks", func(s *fastforward.Sample) float64 { return float64(s.Pending) })
	panel("evicted tasks", func(s *fastforward.Sample) float64 { return float64(s.Evicted) })
	for i := range p.Runs[0].Samples {
		out.Times = append(out.Times, fmt.Sprintf("%.1f h", p.Runs[0].Samples[i].Seconds/3600))
	}
	return out
}
