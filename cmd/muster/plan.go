package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler/checkpoint"
	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/schema"
)

// planFlags say what is planned, and on what.
type planFlags struct {
	master        masterFlag
	against, cell string
	repo          string
	fail          []string
	size          sizeFlags
	all           bool
	out           *outputFlag
}

func newPlan(std stdio) *cobra.Command {
	var f planFlags
	c := &cobra.Command{
		Use:   "plan [BASE | BASE..HEAD | BASE...HEAD]",
		Short: "print what a cell would do with a change",
		Long: `Print what a cell would do with a change: which tasks start, restart, move and stop,
who is preempted, what stays pending and why, how long rollouts take at the least and how
many tasks are down at once, and quota and machines before and after. The change is what
muster diff takes; the cell is that of --master, or of a file that muster checkpoint save
wrote. The code that plans is that of the master, on simulated machines, until nothing
happens any more: in a cell in which nothing else happens the same will happen.

With neither, the cell runs BASE, on the machines that the repository names, which all have
the size that --cpu, --ram and --disk say.

A task takes 0.1 s to start and 0.1 s to stop. It is healthy after the median time that the running
tasks of its job took with the same health check, or, if that is not known, as soon as the check
allows. So times are estimates, and short ones. --fail has what HEAD brings of a job not work.
Batch tasks are taken not to finish.

Exits 1 when something differs or, since BASE has errors, is not compared, 2 when HEAD has
errors.`,
		Example: `  muster plan origin/main...HEAD --master https://m1:7420
  muster plan --against local.checkpoint
  muster plan main --against local.checkpoint --fail search/web
  muster plan origin/main...HEAD --against local.checkpoint -o markdown`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			revs, err := parseRevs(args)
			if err != nil {
				return err
			}
			f.size.note(cmd)
			p, err := f.plan(cmd.Context(), revs)
			if err != nil {
				return err
			}
			if err := f.print(std, p); err != nil {
				return err
			}
			return p.difference.verdict(std.err, len(p.Objects)+len(p.Outcome.Steps) > 0)
		},
	}
	f.add(c, "plan", "text", "markdown", "json")
	c.Flags().StringSliceVar(&f.fail, "fail", nil, "have the version of a job (USER/JOB) that HEAD brings not work")
	return c
}

// add adds the flags that say on what something is done, which verb names, and how it is printed.
func (f *planFlags) add(c *cobra.Command, verb string, formats ...string) {
	f.master.add(c)
	f.size.add(c)
	f.out = addOutput(c, formats...)
	c.Flags().StringVar(&f.against, "against", "", verb+" on the cell in a `file` that muster checkpoint save wrote")
	c.Flags().StringVar(&f.cell, "cell", "", "cell to "+verb+" on without --against and --master, if the repository declares several")
	c.Flags().StringVar(&f.repo, "repo", ".", "directory of the config repository")
	c.Flags().BoolVar(&f.all, "all", false, "show all tasks, however many lines that takes")
}

// sizeFlags are the size of each machine of a cell that is not there.
type sizeFlags struct {
	cpu, ram, disk int64
	given          []string // the flags that are
}

func (f *sizeFlags) add(c *cobra.Command) {
	c.Flags().Int64Var(&f.cpu, "cpu", 16_000, "without a cell: the CPU of each machine, in thousandths of a core")
	c.Flags().Int64Var(&f.ram, "ram", 64<<30, "without a cell: the memory of each machine, in bytes")
	c.Flags().Int64Var(&f.disk, "disk", 1<<40, "without a cell: the disk of each machine, in bytes")
}

// note notes which of the flags are given.
func (f *sizeFlags) note(c *cobra.Command) {
	c.Flags().Visit(func(flag *pflag.Flag) {
		if slices.Contains([]string{"cpu", "ram", "disk"}, flag.Name) {
			f.given = append(f.given, flag.Name)
		}
	})
}

// planned is what `muster plan -o json` prints. Field names are stable; version is that of all
// of them.
type planned struct {
	Version int       `json:"version"`
	Cell    string    `json:"cell"`
	At      time.Time `json:"at"`      // when the cell was as it is planned on
	Applied string    `json:"applied"` // commit that it runs
	Base    string    `json:"base"`
	Head    string    `json:"head,omitempty"` // left out of the work tree
	// Objects are those of the cell that differ, as `muster diff` has them.
	Objects []intent.ObjectChange `json:"objects"`
	Skipped []string              `json:"skipped"`           // what has errors, and is not compared
	Ignored []string              `json:"ignored,omitempty"` // as `muster diff` has them
	Outcome *plan.Outcome         `json:"outcome"`
	Notes   []string              `json:"notes"` // on what is assumed

	difference *difference
}

// workTree stands for the commit of files that are in none.
const workTree = "0000000000000000000000000000000000000000"

func (f *planFlags) plan(ctx context.Context, revs revisions) (*planned, error) {
	for _, job := range f.fail {
		if _, index, err := parseWhat(job); err != nil || index >= 0 {
			return nil, invalid("such as --fail search/web", "--fail %q: want USER/JOB", job)
		}
	}
	cell, d, err := f.input(ctx, revs)
	if err != nil {
		return nil, err
	}
	p := &planned{Version: plan.Version, Base: d.Base, Head: d.Head, Notes: []string{}, difference: d}
	head := d.head.compiled
	head.Commit = cmp.Or(d.Head, workTree)
	var c *plan.Cell
	if cell == nil {
		c, err = f.declared(ctx, p)
	} else {
		p.Cell, p.At, p.Applied = cell.Cell, cell.At, cell.State.Head.Commit
		c, err = f.saved(ctx, p, cell, &head)
	}
	if err != nil {
		return nil, err
	}
	p.Notes = append(p.Notes, silent(c)...)
	if err := f.known(p); err != nil {
		return nil, err
	}
	p.Objects, p.Skipped, p.Ignored = objectsOf(p.Cell, d), d.Skipped, d.Ignored
	c.Fail(f.fails)
	if p.Outcome, err = follow(ctx, c, func() error { return c.Commit(head) }); err != nil {
		return nil, err
	}
	for _, job := range f.fail {
		if name, err := schema.ParseJobName(p.Cell + "/" + job); err == nil && !c.Brings(name) {
			p.Notes = append(p.Notes, fmt.Sprintf("--fail %s has no effect: HEAD brings no other version of it than the cell has", job))
		}
	}
	return p, nil
}

// input returns the cell to plan on, nil if none is named, and the change. Each takes about as long,
// so the cell is read while the change is compiled.
func (f *planFlags) input(ctx context.Context, revs revisions) (*checkpoint.Cell, *difference, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var cell *checkpoint.Cell
	var unread error
	var reading sync.WaitGroup
	reading.Go(func() {
		if cell, unread = f.target(ctx); unread == nil && cell != nil {
			unread = f.fits(cell)
		}
		if unread != nil {
			cancel() // what is compiled is of no use
		}
	})
	d, err := compileRevs(ctx, f.repo, revs)
	reading.Wait()
	if err := cmp.Or(unread, err); err != nil {
		return nil, nil, err
	}
	var live *model.State
	if cell != nil {
		live = cell.State
	}
	d.compare(live)
	return cell, d, nil
}

// saved returns the cell of a checkpoint, and gives head what comes from that and from history. Of
// these neither needs the other, and each is a part of what the command takes.
func (f *planFlags) saved(ctx context.Context, p *planned, cell *checkpoint.Cell, head *schema.Compiled) (*plan.Cell, error) {
	var unknown error
	var reading sync.WaitGroup
	reading.Go(func() {
		*head = checkpoint.NewRedactor(cell.Redaction).Commit(*head)
		head.Trailers, unknown = f.history(ctx, p)
	})
	c, err := newCell(ctx, configOf(cell))
	reading.Wait()
	return c, cmp.Or(unknown, err)
}

// fits errs if a flag is for a plan without a cell, or for another cell.
func (f *planFlags) fits(cell *checkpoint.Cell) error {
	switch {
	case f.cell != "" && f.cell != cell.Cell:
		return invalid("leave it out: the cell is that of the checkpoint or of the master", "--cell %s: this is cell %s", f.cell, cell.Cell)
	case len(f.size.given) > 0:
		return invalid("leave it out: it is for a plan without a cell", "--%s: the machines of cell %s have their own sizes", f.size.given[0], cell.Cell)
	}
	return nil
}

// target returns the cell to plan on, nil if none is named.
func (f *planFlags) target(ctx context.Context) (*checkpoint.Cell, error) {
	url := cmp.Or(f.master.url, os.Getenv("MUSTER_MASTER"))
	if f.against == "" && (url == "" || f.cell != "" && f.master.url == "") {
		return nil, nil
	}
	return savedCell(ctx, &f.master, f.against)
}

// history returns what the messages of the commits since that which the cell runs say, and notes
// where these are not all, or not the only ones.
func (f *planFlags) history(ctx context.Context, p *planned) (schema.Trailers, error) {
	repo, err := git.Open(ctx, git.Config{URL: f.repo, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return schema.Trailers{}, &failure{code: exitInvalid, err: err}
	}
	head := p.Head
	if head == "" { // the work tree is of the newest commit
		if head, err = repo.Resolve(ctx, "HEAD"); err != nil {
			return schema.Trailers{}, err
		}
	}
	if p.Applied != "" {
		if _, err := repo.Resolve(ctx, p.Applied); err != nil {
			p.Notes = append(p.Notes, fmt.Sprintf("the cell runs %s, which is not in this repository: fetch it. Trailers are read of the newest commit alone", short(p.Applied)))
		} else if base, err := repo.MergeBase(ctx, p.Applied, head); err != nil || base != p.Applied {
			p.Notes = append(p.Notes, fmt.Sprintf("the cell runs %s, which HEAD does not contain: merge it first, or what it brings is taken back", short(p.Applied)))
		}
	}
	if p.Head == "" { // nobody has said anything yet
		return schema.Trailers{}, nil
	}
	return repo.Trailers(ctx, p.Applied, p.Head)
}

// silent notes which machines are silent in a simulated cell and were not.
func silent(c *plan.Cell) []string {
	names := c.Silent()
	if len(names) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("planned as silent, since they would have to join again: %s", strings.Join(names, ", "))}
}

// known errs if a job that is to fail is not in HEAD. Where HEAD has errors, that is why.
func (f *planFlags) known(p *planned) error {
	head := p.difference.head
	if errs, _ := count(head.diagnostics); errs > 0 {
		return nil
	}
	for _, job := range f.fail {
		if !slices.ContainsFunc(head.objects.Jobs, func(j schema.Job) bool { return j.Cell == p.Cell && j.ID().Short() == job }) {
			return invalid("muster render prints what it has", "--fail %s: HEAD has no such job in cell %s", job, p.Cell)
		}
	}
	return nil
}

// fails reports whether a version of a job is to be one that does not work.
func (f *planFlags) fails(j *schema.Job) bool { return slices.Contains(f.fail, j.ID().Short()) }

// declared returns a cell that runs the base on the machines that the repository names.
func (f *planFlags) declared(ctx context.Context, p *planned) (*plan.Cell, error) {
	d := p.difference
	objects := &d.head.objects
	p.Cell = f.cell
	if p.Cell == "" {
		if len(objects.Cells) != 1 {
			return nil, invalid("give --cell, --against or --master", "which cell? the repository declares %s", schema.Count(len(objects.Cells), "cell"))
		}
		p.Cell = objects.Cells[0].Name
	}
	p.At, p.Applied = time.Now().UTC().Truncate(time.Second), d.Base
	size := schema.Resources{CPUMilli: f.size.cpu, RAMBytes: f.size.ram, DiskBytes: f.size.disk}
	c, err := plan.New(plan.Config{State: model.NewState(p.Cell), Now: p.At, Parallel: workers()})
	if err != nil {
		return nil, err
	}
	n := 0
	for i := range objects.Machines {
		m := &objects.Machines[i]
		if m.Cell != p.Cell || m.Match != "" || m.Gone {
			continue
		}
		n++
		if err := c.Add(schema.MachineInfo{Name: m.Name, Boot: "planned", Capacity: size, Ports: schema.PortRange{First: 20000, Last: 29999}, Attributes: m.Labels}); err != nil {
			return nil, err
		}
	}
	if n == 0 {
		return nil, invalid("name a cell: --master ADDRESS, or --against FILE that `muster checkpoint save` wrote", "there is no cell to plan on, and the repository names no machine of cell %s", p.Cell)
	}
	p.Notes = append(p.Notes, fmt.Sprintf("planned without a cell: %s of the repository with %s CPU, %s of memory and %s of disk each, on which %s runs",
		schema.Count(n, "machine"), schema.CPU(size.CPUMilli), schema.Bytes(size.RAMBytes), schema.Bytes(size.DiskBytes), short(d.Base)))
	base := d.base.compiled
	base.Commit = d.Base
	_, err = follow(ctx, c, func() error { return c.Commit(base) })
	return c, err
}

// objectsOf returns the changes of what is of a cell, or of all cells.
func objectsOf(cell string, d *difference) []intent.ObjectChange {
	quotas := map[string]bool{} // of the cell
	for _, side := range []*compiledRepo{d.base, d.head} {
		for i := range side.objects.Quotas {
			q := &side.objects.Quotas[i]
			quotas[q.Name] = quotas[q.Name] || q.Cell == cell
		}
	}
	out := []intent.ObjectChange{}
	for i := range d.Objects {
		o := &d.Objects[i]
		switch o.Kind {
		case schema.KindPriority, schema.KindTenant:
		case schema.KindCell:
			if o.Name != cell {
				continue
			}
		case schema.KindQuota:
			if !quotas[o.Name] {
				continue
			}
		default:
			if !strings.HasPrefix(o.Name, cell+"/") {
				continue
			}
		}
		out = append(out, *o)
	}
	return out
}

func (f *planFlags) print(std stdio, p *planned) error {
	most, width := 20, columns(std.out, false)
	if f.all {
		most = 0
	}
	commit := "the work tree"
	if p.Head != "" {
		commit = short(p.Head)
	}
	head := fmt.Sprintf("plan of %s on cell %s as of %s, which runs %s", commit, p.Cell, p.At.Format(time.RFC3339), short(p.Applied))
	var b bytes.Buffer
	switch f.out.value {
	case "json":
		if err := printJSON(&b, p); err != nil {
			return err
		}
	case "markdown":
		sections := append(screen.Plan(p.Outcome, 0, 0), screen.Section{Title: "objects", Text: p.objects()})
		b.WriteString(screen.Comment(strings.Join(append([]string{head, screen.PlanHead(p.Outcome)}, p.Notes...), "\n"), sections))
	default:
		text := screen.Wrap("", "  ", head, width)
		for _, n := range p.Notes {
			text += screen.Wrap("", "  ", n, width)
		}
		text += "\n" + screen.Break(screen.PrintableLines(p.objects()), width)
		for _, s := range screen.Plan(p.Outcome, width, most) {
			text += "\n" + s.Title + "\n" + s.Text
		}
		b.WriteString(text + "\n" + screen.Wrap("", "  ", screen.PlanHead(p.Outcome), width))
	}
	_, err := io.Copy(std.out, &b)
	return err
}

// objects returns what differs, as muster diff prints it.
func (p *planned) objects() string {
	d := &difference{Comparison: p.difference.Comparison}
	d.Objects, d.Held = p.Objects, nil // what is held by guards of the cell is in the outcome
	d.Sum()
	var b strings.Builder
	printComparison(&b, d)
	return b.String()
}
