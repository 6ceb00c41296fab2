package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/placement/pack"
	"github.com/musterhq/muster/reconciler/compact"
	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/schema"
)

// compactFlags say what is compacted.
type compactFlags struct {
	whatIfFlags
	repo, cell   string
	size         sizeFlags
	nodes, tasks string
	seeds        int
}

// compacted is what `muster simulate compact -o json` prints. Field names are stable; version
// is that of all of them.
type compacted struct {
	Version int       `json:"version"`
	Cell    string    `json:"cell,omitempty"` // left out of a trace
	At      time.Time `json:"at,omitzero"`
	*compact.Result
	Notes []string `json:"notes"` // on what is assumed
}

func newSimulateCompact(std stdio) *cobra.Command {
	var f compactFlags
	c := &cobra.Command{
		Use:   "compact",
		Short: "print how few machines the work of a cell needs if it is packed anew",
		Long: `Print how few machines the work of a cell needs if it is packed anew, by the method of
Borg's evaluation: machines are taken away in random order for as long as all tasks have
room, but 0.2% of them, which may be picky. That is done for 11 orders; the result is the
90th percentile, with the least and the most. Where the work has no room on the machines
that there are, each is there 2, 4, 8 or 16 times to begin with; where a job asks for
more than half of the cell, of any resource or kind of devices, what it wants of machines is
taken as a wish. Tasks are packed by their limits.

Of a cell that runs it says, too, how many machines are in use now, and how many of them can be
emptied by moves as the cell is: as rebalance.emptyBelow of the cell says, else of which less than
20% is used. In a large cell that may end early, and says how many were not looked at.

The cell is that of --master, of a file that muster checkpoint save wrote, that which a
repository declares (--repo), or a trace in the columns that docs/traces.md has.`,
		Example: `  muster simulate compact --against local.checkpoint
  muster simulate compact --repo . --cell local
  muster simulate compact --nodes nodes.csv --tasks tasks.csv --seeds 3 -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.size.note(cmd)
			out, err := f.compact(cmd.Context())
			if err != nil {
				return err
			}
			if f.out.value == "json" {
				return printJSON(std.out, out)
			}
			_, err = io.WriteString(std.out, out.text(columns(std.out, false)))
			return err
		},
	}
	f.addCell(c)
	f.size.add(c)
	c.Flags().StringVar(&f.repo, "repo", "", "directory of a config repository, whose machines are all as large as --cpu, --ram and --disk say")
	c.Flags().StringVar(&f.cell, "cell", "", "with --repo: cell to compact, if the repository declares several")
	c.Flags().StringVar(&f.nodes, "nodes", "", "CSV file of the machines of a trace")
	c.Flags().StringVar(&f.tasks, "tasks", "", "CSV file of the tasks of a trace")
	c.Flags().IntVar(&f.seeds, "seeds", 11, "orders that are tried")
	return c
}

func (f *compactFlags) compact(ctx context.Context) (*compacted, error) {
	out := &compacted{Version: plan.Version, Notes: []string{}}
	var err error
	switch trace := f.nodes != "" || f.tasks != ""; {
	case f.seeds < 1:
		return nil, invalid("how many orders are tried", "--seeds %d: want at least 1", f.seeds)
	case trace && (f.repo != "" || f.against != "" || f.master.url != ""), f.repo != "" && (f.against != "" || f.master.url != ""):
		return nil, invalid("leave out all but one", "several of --master, --against, --repo, and --nodes with --tasks are given")
	case f.repo == "" && f.cell != "":
		return nil, invalid("leave it out, or give --repo", "--cell %s is of a cell that a repository declares", f.cell)
	case f.repo == "" && len(f.size.given) > 0:
		return nil, invalid("leave it out, or give --repo", "--%s is of the machines that a repository declares", f.size.given[0])
	case trace:
		out.Result, err = f.trace(ctx)
	case f.repo != "":
		err = f.declared(ctx, out)
	default:
		saved, failed := savedCell(ctx, &f.master, f.against)
		if failed != nil {
			return nil, failed
		}
		out.Cell, out.At = saved.Cell, saved.At
		out.Result, err = compacting(ctx, compact.Config{State: saved.State, Machines: saved.Machines, Now: saved.At, Seeds: f.seeds})
	}
	if err != nil && ctx.Err() != nil {
		return nil, err
	}
	if err != nil {
		return nil, invalid("muster simulate compact --help has the method", "%w", err)
	}
	return out, nil
}

// trace compacts a trace.
func (f *compactFlags) trace(ctx context.Context) (*compact.Result, error) {
	if f.nodes == "" || f.tasks == "" {
		return nil, invalid("give both, or neither", "--nodes and --tasks: want a file each")
	}
	var nodes []pack.Node
	var tasks []pack.Task
	err := open("--nodes", f.nodes, func(r io.Reader) (err error) { nodes, err = pack.Nodes(f.nodes, r); return err })
	if err == nil {
		err = open("--tasks", f.tasks, func(r io.Reader) (err error) { tasks, err = pack.Tasks(f.tasks, r); return err })
	}
	if err != nil {
		return nil, err
	}
	found, err := computed(ctx, func() (*pack.Compacted, error) {
		return pack.Compact(pack.CellOf(nodes, tasks), f.seeds, placement.Options{})
	})
	if err != nil {
		return nil, err
	}
	return &compact.Result{Compacted: *found}, nil
}

// open reads a file that a flag names.
func open(flag, file string, read func(io.Reader) error) error {
	r, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	defer r.Close()
	return read(r)
}

// declared compacts the cell that a repository declares, as it is once all of it runs.
func (f *compactFlags) declared(ctx context.Context, out *compacted) error {
	d, err := diffRepo(ctx, f.repo, revisions{base: "HEAD", head: "HEAD"}, nil)
	if err != nil {
		return err
	}
	p := &planned{Notes: []string{}, difference: d}
	flags := planFlags{cell: f.cell, size: f.size}
	c, err := flags.declared(ctx, p)
	if err != nil {
		return err
	}
	out.Cell, out.At, out.Notes = p.Cell, p.At, p.Notes
	out.Result, err = compacting(ctx, compact.Config{State: c.State(), Now: p.At, Seeds: f.seeds})
	return err
}

// compacting compacts until ctx is done.
func compacting(ctx context.Context, c compact.Config) (*compact.Result, error) {
	return computed(ctx, func() (*compact.Result, error) { return compact.Compact(c) })
}

// text says it in words, in lines of a width.
func (c *compacted) text(width int) string {
	var b strings.Builder
	line := func(format string, args ...any) {
		b.WriteString(screen.Wrap("", "  ", fmt.Sprintf(format, args...), width))
	}
	if c.Cell != "" {
		line("cell %s as of %s", c.Cell, c.At.Format(time.RFC3339))
	}
	for _, n := range c.Notes {
		line("%s", n)
	}
	line("%s of %d %s the work packed anew (90th percentile of %s; %d to %d)",
		schema.Count(c.Value, "machine"), c.Machines, schema.Verb(c.Value, "holds", "hold"), schema.Count(c.Seeds, "order"), c.Min, c.Max)
	if c.Cell != "" {
		line("%s %s a task now, those of system jobs apart", schema.Count(c.Used, "machine"), schema.Verb(c.Used, "holds", "hold"))
		line("%s of these can be emptied by moves as the cell is, where less than %d%% is used (rebalance.emptyBelow)", schema.Count(c.Emptied, "machine"), c.EmptyBelow)
		if c.Unseen > 0 {
			line("the search for these ended early: %s of which so little is used %s not looked at, and more may be emptied", schema.Count(c.Unseen, "machine"), schema.Verb(c.Unseen, "was", "were"))
		}
	}
	line("%s %s placed, of which %d may stay pending", schema.Count(c.Tasks, "task"), schema.Verb(c.Tasks, "is", "are"), c.Pending)
	if c.Clones > 1 {
		line("the work has no room on the machines that there are: each is there %d times", c.Clones)
	}
	if len(c.Softened) > 0 {
		line("taken as wishes, since each asks for more than half of the cell: what is wanted of machines by %s", strings.Join(c.Softened, ", "))
	}
	return b.String()
}
