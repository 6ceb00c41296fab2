package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler/checkpoint"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/parallel"
	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/schema"
)

// whatIfFlags say which cell is simulated.
type whatIfFlags struct {
	master  masterFlag
	against string
	grows   int
	all     bool
	out     *outputFlag
	notes   []string // on what is assumed, beside those of the cell
}

// maxGrows is how many machines may join a simulated cell.
const maxGrows = 10_000

func (f *whatIfFlags) add(c *cobra.Command) {
	f.addCell(c)
	c.Flags().IntVar(&f.grows, "cell-grows", 0, "have so many machines join first, like those that the cell has, in turn by name")
}

// addCell adds the flags of what is found out about a cell to which no machine can join.
func (f *whatIfFlags) addCell(c *cobra.Command) {
	f.master.add(c)
	f.out = addOutput(c, "text", "json")
	c.Flags().StringVar(&f.against, "against", "", "simulate the cell in a `file` that muster checkpoint save wrote")
}

// cell returns the cell that is simulated, as it was when it was saved, or is now.
func (f *whatIfFlags) cell(ctx context.Context) (*plan.Cell, *checkpoint.Cell, error) {
	if f.grows < 0 || f.grows > maxGrows {
		return nil, nil, invalid("how many machines join", "--cell-grows %d: want 0 to %d", f.grows, maxGrows)
	}
	saved, err := savedCell(ctx, &f.master, f.against)
	if err != nil {
		return nil, nil, err
	}
	c, err := newCell(ctx, configOf(saved))
	return c, saved, err
}

// grow has the machines join that are to.
func (f *whatIfFlags) grow(c *plan.Cell) error {
	if f.grows == 0 {
		return nil
	}
	if _, err := c.Grow(f.grows); err != nil {
		return invalid("a cell grows by machines like those that it has", "--cell-grows %d: %w", f.grows, err)
	}
	return nil
}

// savedCell returns a checkpoint from a file, or of the cell of a master.
func savedCell(ctx context.Context, m *masterFlag, file string) (*checkpoint.Cell, error) {
	if file != "" && m.url != "" {
		return nil, invalid("leave one of them out", "both --master and --against are given")
	}
	if file != "" {
		return readCheckpoint(file)
	}
	cl, err := m.client()
	if err != nil {
		return nil, err
	}
	from, err := cl.Checkpoint(ctx, false)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	return checkpoint.Read(from)
}

// configOf returns what a cell in a checkpoint is simulated with.
func configOf(c *checkpoint.Cell) plan.Config {
	return plan.Config{
		State: c.State, Machines: c.Machines, Now: c.At, Since: c.Since, LostAfter: c.LostAfter(),
		Parallel: workers(),
	}
}

// workers returns what spreads the work of a simulated cell's master over all processors.
func workers() func(n int, do func(i int)) { return parallel.Calls(runtime.GOMAXPROCS(0)) }

// simulated is what the commands print with -o json. Field names are stable.
type simulated struct {
	Version int           `json:"version"`
	Cell    string        `json:"cell"`
	At      time.Time     `json:"at"`
	Outcome *plan.Outcome `json:"outcome"`
	Notes   []string      `json:"notes"` // on what is assumed
}

// run does something to a cell, after the machines have joined that are to, and prints what comes of
// it.
func (f *whatIfFlags) run(ctx context.Context, std stdio, c *plan.Cell, saved *checkpoint.Cell, do func() error) error {
	o, err := follow(ctx, c, func() error {
		if err := f.grow(c); err != nil {
			return err
		}
		return do()
	})
	if err != nil {
		return err
	}
	notes := append(append([]string{}, silent(c)...), f.notes...)
	if f.out.value == "json" {
		return printJSON(std.out, simulated{plan.Version, saved.Cell, saved.At, o, notes})
	}
	most, width := 20, columns(std.out, false)
	if f.all {
		most = 0
	}
	text := screen.Wrap("", "  ", fmt.Sprintf("cell %s as of %s", saved.Cell, saved.At.Format(time.RFC3339)), width)
	for _, n := range notes {
		text += screen.Wrap("", "  ", n, width)
	}
	for _, s := range screen.Plan(o, width, most) {
		text += "\n" + s.Title + "\n" + s.Text
	}
	_, err = io.WriteString(std.out, text+"\n"+screen.Wrap("", "  ", screen.PlanHead(o), width))
	return err
}

// machinesFlags pick machines, by name or by their attributes, to which something is done
// in a simulated cell.
type machinesFlags struct {
	whatIfFlags
	selector string
	up       bool // a selector picks of the machines those alone that are up
}

func (f *machinesFlags) add(c *cobra.Command) {
	f.whatIfFlags.add(c)
	c.Flags().StringVarP(&f.selector, "selector", "l", "", "machines with these attributes, such as rack=r3, of those that are there before others join")
	c.Flags().BoolVar(&f.all, "all", false, "show all tasks, however many lines that takes")
}

// command returns a command that does something to the machines that are meant, in a simulated cell,
// and prints what comes of it; check errs for flags of its own.
func (f *machinesFlags) command(std stdio, c *cobra.Command, check func() error, do func(c *plan.Cell, names []string) error) *cobra.Command {
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := check(); err != nil {
			return err
		}
		meant, err := f.meant(args)
		if err != nil {
			return err
		}
		c, saved, err := f.cell(cmd.Context())
		if err != nil {
			return err
		}
		names, down, err := meant.names(c, f.up)
		if err != nil {
			return err
		}
		if len(down) > 0 {
			f.notes = append(f.notes, "left out, since they are not up: "+screen.Names(down, namedMachines))
		}
		return f.run(cmd.Context(), std, c, saved, func() error {
			if err := do(c, names); err != nil {
				return invalid("muster status --machines lists the machines", "%w", err)
			}
			return nil
		})
	}
	f.add(c)
	return c
}

// meantMachines are machines by their names, or by a selector.
type meantMachines struct {
	named    []string
	selector *schema.Selector // nil if none is given
}

// meant errs for what can mean no machine of any cell.
func (f *machinesFlags) meant(args []string) (*meantMachines, error) {
	for _, name := range args {
		if err := schema.CheckName(name); err != nil {
			return nil, invalid("muster status --machines lists the machines", "machine: %w", err)
		}
	}
	out := &meantMachines{named: args}
	if f.selector != "" {
		selector, err := schema.ParseSelector(f.selector)
		if err != nil {
			return nil, invalid("such as -l rack=r3", "--selector: %w", err)
		}
		out.selector = &selector
	}
	return out, nil
}

// namedMachines is how many machines a note names.
const namedMachines = 10

// names returns the machines of a cell that are meant; with up of those that a selector picks only
// the ones that are up, and beside them the others that it picks.
func (f *meantMachines) names(c *plan.Cell, up bool) (all, down []string, err error) {
	names := map[string]bool{}
	for _, name := range f.named {
		names[name] = true
	}
	if s := c.Status(); f.selector != nil {
		for i := range s.Machines {
			m := &s.Machines[i]
			attributes := maps.Clone(m.Attributes)
			if attributes == nil {
				attributes = map[string]string{}
			}
			attributes["machine"] = m.Name
			switch {
			case names[m.Name] || !f.selector.Matches(attributes):
			case up && m.Health != string(model.HealthUp):
				down = append(down, m.Name)
			default:
				names[m.Name] = true
			}
		}
	}
	if len(names) == 0 {
		err := errors.New("no machine is picked")
		if len(down) > 0 {
			err = fmt.Errorf("no machine is picked that is up: %s", screen.Names(down, namedMachines))
		}
		return nil, nil, invalid("name machines, or attributes that some have: muster status --machines lists them", "%w", err)
	}
	return slices.Sorted(maps.Keys(names)), down, nil
}

func newSimulateDrain(std stdio) *cobra.Command {
	var f machinesFlags
	var atOnce int
	c := f.command(std, &cobra.Command{
		Use:   "drain MACHINE… | -l ATTRIBUTES",
		Short: "print what a cell would do if machines were drained",
		Long: `Print what a cell would do if machines were drained: which tasks move where, for how
long and beside which disruption budgets, who is preempted, and what stays pending or
keeps a machine from being empty. The cell is that of --master, or of a file that
muster checkpoint save wrote; the code is the master's, on simulated machines.`,
		Example: "  muster simulate drain m1 m2 --against local.checkpoint\n  muster simulate drain -l rack=r3 --at-once 4",
	}, func() error {
		if atOnce < 1 || atOnce > schema.MaxDrainAtOnce {
			return invalid("how many of the machines are emptied at a time", "--at-once %d: want 1 to %d", atOnce, schema.MaxDrainAtOnce)
		}
		return nil
	}, func(c *plan.Cell, names []string) error { return c.Drain(names, atOnce) })
	c.Flags().IntVar(&atOnce, "at-once", 1, "how many of the machines are emptied at a time")
	return c
}

func newSimulateLose(std stdio) *cobra.Command {
	f := machinesFlags{up: true}
	return f.command(std, &cobra.Command{
		Use:   "lose MACHINE… | -l ATTRIBUTES",
		Short: "print what a cell would do if machines were lost",
		Long: `Print what a cell would do if machines were silent from now on: which tasks start again
elsewhere and when, who is preempted, and what stays pending. The cell is that of
--master, or of a file that muster checkpoint save wrote; the code is the master's, on
simulated machines. Of those that --selector picks the ones are left out that are not up.`,
		Example: "  muster simulate lose m1 --against local.checkpoint\n  muster simulate lose -l rack=r3",
	}, func() error { return nil }, func(c *plan.Cell, names []string) error {
		unknown, err := c.Lose(names)
		if err == nil && len(unknown) > 0 {
			err = fmt.Errorf("cell %s has no machine that is up and called %s", c.Status().Cell, strings.Join(unknown, ", "))
		}
		return err
	})
}

func newSimulateGrow(std stdio) *cobra.Command {
	var f whatIfFlags
	c := &cobra.Command{
		Use:   "grow --cell-grows N",
		Short: "print what a cell would do if machines joined",
		Long: `Print what a cell would do if machines joined that are like those that it has: which
pending tasks start, and what moves. The cell is that of --master, or of a file that muster
checkpoint save wrote; the code is the master's, on simulated machines. drain, lose and
fit take --cell-grows too.`,
		Example: "  muster simulate grow --cell-grows 20 --against local.checkpoint",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.grows == 0 {
				return invalid("such as --cell-grows 20", "by how many machines? --cell-grows is not given")
			}
			c, saved, err := f.cell(cmd.Context())
			if err != nil {
				return err
			}
			return f.run(cmd.Context(), std, c, saved, func() error { return nil })
		},
	}
	f.add(c)
	c.Flags().BoolVar(&f.all, "all", false, "show all tasks, however many lines that takes")
	return c
}

func newSimulateFit(std stdio) *cobra.Command {
	var f whatIfFlags
	c := &cobra.Command{
		Use:   "fit USER/JOB",
		Short: "print how many more tasks of a job have room in a cell",
		Long: `Print how many more tasks of a job have room in a cell, by rack, and what stops the
next one: beside what runs, with no task making room for another, and whatever quota
says. The cell is that of --master, or of a file that muster checkpoint save wrote; the
code is the master's.`,
		Example: "  muster simulate fit search/web --against local.checkpoint",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, index, err := parseWhat(args[0]); err != nil || index >= 0 {
				return invalid("such as muster simulate fit search/web", "%q: want USER/JOB", args[0])
			}
			c, _, err := f.cell(cmd.Context())
			if err != nil {
				return err
			}
			if err := f.grow(c); err != nil {
				return err
			}
			fit, err := computed(cmd.Context(), func() (*plan.Fit, error) {
				fit, err := c.Fit(args[0])
				if err != nil {
					return nil, invalid("muster status lists the jobs", "%w", err)
				}
				return fit, nil
			})
			if err != nil {
				return err
			}
			if f.out.value == "json" {
				return printJSON(std.out, fit)
			}
			return printFit(std.out, fit)
		},
	}
	f.add(c)
	return c
}

func printFit(w io.Writer, f *plan.Fit) error {
	width := columns(w, false)
	text := fmt.Sprintf("%s has %s: %d more fit\n", f.Job, schema.Count(f.Has, "task"), f.More)
	for _, rack := range slices.Sorted(maps.Keys(f.Racks)) {
		if rack != "" {
			text += fmt.Sprintf("  rack %s: %d\n", rack, f.Racks[rack])
		}
	}
	if n := f.Racks[""]; n > 0 && len(f.Racks) > 1 {
		text += fmt.Sprintf("  on machines without a rack: %d\n", n)
	}
	if f.Next != "" {
		text += screen.Wrap("the next: ", "  ", f.Next, width)
	}
	_, err := io.WriteString(w, screen.PrintableLines(text))
	return err
}
