package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// diffFlags say what is compared, and with what.
type diffFlags struct {
	master     masterFlag
	against    string
	live       bool
	repo, cell string
	offline    bool
	out        *outputFlag
}

func newDiff(std stdio) *cobra.Command {
	var f diffFlags
	c := &cobra.Command{
		Use:   "diff [BASE | BASE..HEAD | BASE...HEAD]",
		Short: "print what a change does to objects and tasks",
		Long: `Print how the data that a config repository compiles to differs between two
commits, by object and field, and what each change does to the tasks that run: in
place, or restart. BASE...HEAD begins where HEAD parted from BASE, as a pull request
does. With BASE alone, or nothing for HEAD, it is what HEAD or the work tree differs
in. Comments, and objects that only move between files, are not changes. Removals that
a prune guard of the cell would hold are listed, with the trailer that allows them.
With --cell it is what one of the cells is given, and what holds in all of them.

A repository does not say which tasks of a batch job have finished, nor what a machine holds.
With --against-cell the cell of --master is asked, with --against a file that muster
checkpoint save wrote: finished tasks are neither stops nor restarts then, and a machine that
is drained or gone comes with the tasks that it holds. muster plan says what becomes of them.

Exits 1 when something differs or is not compared, 2 when HEAD has errors.`,
		Example: `  muster diff                       the work tree against HEAD
  muster diff main~1..main
  muster diff origin/main...HEAD    what a pull request does
  muster diff --cell eu-1           what of that is in the cell eu-1
  muster diff --against-cell        with what the cell of MUSTER_MASTER holds`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			revs, err := parseRevs(args)
			if err != nil {
				return err
			}
			live, err := f.holds(cmd.Context())
			if err != nil {
				return err
			}
			d, err := diffRepo(cmd.Context(), f.repo, revs, live)
			if err != nil {
				return err
			}
			if err := d.only(f.cell); err != nil {
				return err
			}
			return d.print(cmd.Context(), std, f.out.value == "json", tagHints{f.offline, tagPatience})
		},
	}
	f.master.add(c)
	c.Flags().BoolVar(&f.live, "against-cell", false, "leave out the tasks that have finished in the cell of --master, and say what its machines hold")
	c.Flags().StringVar(&f.against, "against", "", "do the same with the cell in a `file` that muster checkpoint save wrote")
	c.Flags().StringVar(&f.repo, "repo", ".", "directory of the config repository")
	c.Flags().StringVar(&f.cell, "cell", "", "print only what is of this cell, and what holds in all cells")
	addOffline(c, &f.offline)
	f.out = addOutput(c, "text", "json")
	return c
}

// holds returns what the cell holds that is named, nil if none is. MUSTER_MASTER alone names
// none: what a change is can be seen without a master.
func (f *diffFlags) holds(ctx context.Context) (*model.State, error) {
	if !f.live && f.against == "" && f.master.url == "" {
		return nil, nil
	}
	saved, err := savedCell(ctx, &f.master, f.against)
	if err != nil {
		return nil, err
	}
	if f.cell != "" && f.cell != saved.Cell {
		return nil, invalid("leave one of them out", "--cell %s: the cell that is asked is %s", f.cell, saved.Cell)
	}
	return saved.State, nil
}

// revisions are what is compared. With fork it is from where head parted from
// base; head "" is the work tree.
type revisions struct {
	base, head string
	fork       bool
}

func parseRevs(args []string) (revisions, error) {
	if len(args) == 0 {
		return revisions{base: "HEAD"}, nil
	}
	for _, dots := range []string{"...", ".."} {
		if base, head, ok := strings.Cut(args[0], dots); ok {
			if strings.Contains(head, "..") {
				return revisions{}, invalid("such as main..HEAD", "%q: want two revisions", args[0])
			}
			return revisions{cmp.Or(base, "HEAD"), cmp.Or(head, "HEAD"), dots == "..."}, nil
		}
	}
	if args[0] == "" {
		return revisions{}, invalid("such as main..HEAD", "the revision is empty")
	}
	return revisions{base: args[0]}, nil
}

// difference is what `muster diff -o json` prints.
type difference struct {
	Version int    `json:"version"`
	Base    string `json:"base"`           // commit
	Head    string `json:"head,omitempty"` // commit, absent for the work tree
	Cell    string `json:"cell,omitempty"` // the only one that is compared
	intent.Comparison
	// Ignored are lines of messages that were meant as trailers, and why they
	// have no effect.
	Ignored    []string `json:"ignored,omitempty"`
	base, head *compiledRepo
}

// diffRepo compiles both sides and compares them, with what a cell holds; nil if none is known.
func diffRepo(ctx context.Context, dir string, revs revisions, live *model.State) (*difference, error) {
	d, err := compileRevs(ctx, dir, revs)
	if err != nil {
		return nil, err
	}
	d.compare(live)
	return d, nil
}

// compare finds out what is different; live is the cell that counts, nil for none.
func (d *difference) compare(live *model.State) {
	d.Comparison = intent.Compare(d.base.compiled, d.head.compiled, live)
}

// compileRevs compiles two revisions, for compare.
func compileRevs(ctx context.Context, dir string, revs revisions) (*difference, error) {
	repo, err := git.Open(ctx, git.Config{URL: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, &failure{code: exitInvalid, err: err}
	}
	d := &difference{Version: outputVersion}
	if d.Base, d.Head, err = revs.resolve(ctx, repo); err != nil {
		return nil, &failure{code: exitInvalid, err: err}
	}
	compiler, done, err := withCache(dir)
	if err != nil {
		return nil, err
	}
	defer done()
	base, err := repo.Tree(ctx, d.Base)
	if err != nil {
		return nil, err
	}
	if d.base, err = compileTree(ctx, compiler, base, reconciler.Take); err != nil {
		return nil, err
	}
	head, err := headTree(ctx, repo, dir, d.Head)
	if err != nil {
		return nil, err
	}
	if d.head, err = compileTree(ctx, compiler, head, reconciler.Take); err != nil {
		return nil, err
	}
	if d.Head != "" { // else nobody has said anything yet
		if d.head.compiled.Trailers, err = repo.Trailers(ctx, d.Base, d.Head); err != nil {
			return nil, err
		}
	}
	d.Ignored = d.head.compiled.Ignored
	return d, nil
}

// headTree reads a commit, or the work tree for "". From the repository that the base was read from:
// most directories of the two are the same, and are read once.
func headTree(ctx context.Context, repo *git.Repo, dir, commit string) (schema.Tree, error) {
	if commit == "" {
		return readWorkTree(dir)
	}
	return repo.Tree(ctx, commit)
}

// only leaves what is of a cell, or all for "".
func (d *difference) only(cell string) error {
	if cell == "" {
		return nil
	}
	if cells := intent.CellsIn(d.base.objects, d.head.objects); !slices.Contains(cells, cell) {
		return noSuchCell(cell, cells)
	}
	d.Cell, d.Comparison = cell, d.In(cell)
	return nil
}

// noSuchCell refuses a cell that is none of those of the repository.
func noSuchCell(cell string, cells []string) error {
	return invalid("the repository has "+cmp.Or(strings.Join(cells[:min(len(cells), maxListed)], ", "), "no cell"), "--cell %q: there is no such cell", cell)
}

// maxListed is how many cells a hint lists, and of how many jobs it is said what a machine holds.
const maxListed = 10

// resolve returns the commits to compare; head is "" for the work tree.
func (r revisions) resolve(ctx context.Context, repo *git.Repo) (base, head string, err error) {
	if base, err = repo.Resolve(ctx, r.base); err != nil {
		return "", "", err
	}
	if r.head == "" {
		return base, "", nil
	}
	if head, err = repo.Resolve(ctx, r.head); err != nil || !r.fork {
		return base, head, err
	}
	base, err = repo.MergeBase(ctx, base, head)
	return base, head, err
}

// print writes d as JSON or for people, and what is wrong in either side to
// std.err. Its error is the exit code.
func (d *difference) print(ctx context.Context, std stdio, asJSON bool, hints tagHints) error {
	var err error
	if asJSON {
		err = printJSON(std.out, d)
	} else {
		printComparison(std.out, d)
	}
	if errs, _ := count(d.head.diagnostics); errs > 0 {
		hints.fill(ctx, d.head.diagnostics)
	}
	return cmp.Or(err, d.verdict(std.err, len(d.Objects) > 0))
}

// verdict says on w what is wrong in either side and in messages, and returns the exit code: what
// differs, or may since it is not compared, or errors of HEAD.
func (d *difference) verdict(w io.Writer, differs bool) error {
	for _, why := range d.Ignored {
		screen.Printf(w, "warning: %s\n", why)
	}
	if errs, _ := count(d.head.diagnostics); errs > 0 {
		printDiagnostics(w, screen.Painter(isTerminal(w)), d.head.diagnostics, d.head.tree.Files)
		return &failure{code: exitInvalid}
	}
	if errs, _ := count(d.base.diagnostics); errs > 0 {
		screen.Printf(w, "muster: %s in %s: what they touch is not compared\n", schema.Count(errs, "error"), d.Base)
	}
	if differs || len(d.Skipped) > 0 {
		return &failure{code: exitDiffers}
	}
	return nil
}

// printComparison writes d for people: a block for each object, with a line for
// each field.
func printComparison(w io.Writer, d *difference) {
	p := screen.Painter(isTerminal(w))
	for i := range d.Objects {
		o := &d.Objects[i]
		sign, colour := "~", screen.Yellow
		switch o.Action {
		case intent.Added:
			sign, colour = "+", screen.Green
		case intent.Removed:
			sign, colour = "-", screen.Red
		}
		line := p.Paint(colour, sign+" "+string(o.Kind)+" "+o.Name)
		then := ""
		if does := doesToTasks(o.Start, o.Stop, o.Restart, o.Finished, o.AtMost); does != "" {
			then = ": " + does
		} else if o.Change == intent.Move && o.Kind == schema.KindMachine {
			line += ": the tasks on it move"
		} else if o.Action == intent.Added && o.Change != intent.Unchanged {
			then = ": " + string(o.Change)
		}
		screen.Printf(w, "%s%s  (%s)\n", line, then, o.Origin)
		rows := make([][]string, 0, len(o.Fields))
		for _, f := range o.Fields {
			was, is := valuesOf(f.Field, f.Old, f.New)
			values := was + " → " + is
			if bytes.Equal(f.Old, f.New) { // another ciphertext for the same
				values = "sealed again for " + is
			}
			rows = append(rows, []string{"    " + f.Field, values, string(f.Change)})
		}
		_ = table(w, rows) // w is written to with Fprintf too, and nobody reads what broke
		if o.Holds != nil {
			screen.Printf(w, "    %s\n", holdsWords(o.Holds))
		}
		if len(o.Lost) > 0 {
			screen.Printf(w, "    a task that moves starts without %s\n", strings.Join(o.Lost, ", "))
		}
	}
	for _, s := range d.Skipped {
		screen.Printf(w, "%s %s is not compared: it has errors\n", p.Paint(screen.Red, "?"), s)
	}
	for i := range d.Held {
		h := &d.Held[i]
		screen.Printf(w, "%s held in cell %s: %s\n    %s\n", p.Paint(screen.Yellow, "!"), h.Cell, h.Reason, h.Next)
	}
	for i := range d.Warnings {
		screen.Printf(w, "%s %s\n    %s\n", p.Paint(screen.Yellow, "!"), d.Warnings[i].Error(), d.Warnings[i].Hint)
	}
	printSum(w, d)
}

// printSum writes the last line of a comparison.
func printSum(w io.Writer, d *difference) {
	switch {
	case len(d.Objects) > 0:
	case len(d.Skipped) > 0:
		screen.Printf(w, "no change in what is compared\n")
		return
	default:
		screen.Printf(w, "no change\n")
		return
	}
	n := map[string]int{}
	for i := range d.Objects {
		n[d.Objects[i].Action]++
	}
	does := doesToTasks(d.Start, d.Stop, d.Restart, d.Finished, d.AtMost)
	if d.Moving > 0 { // how many they are only the master knows
		if does != "" {
			does += ", and "
		}
		does += "those on the machines above move"
	}
	screen.Printf(w, "%d added, %d removed, %d changed; tasks: %s\n", n[intent.Added], n[intent.Removed], n[intent.Changed], cmp.Or(does, "none is touched"))
}

// doesToTasks says in words what happens to how many tasks, "" if to none. With atMost those
// that stop and restart may be fewer.
func doesToTasks(start, stop, restart, finished int, atMost bool) string {
	most := ""
	if atMost {
		most = "at most "
	}
	var parts []string
	for _, n := range []struct {
		n            int
		before, verb string
	}{{start, "", "start"}, {stop, most, "stop"}, {restart, most, "restart"}} {
		if n.n > 0 {
			parts = append(parts, fmt.Sprintf("%s%d %s", n.before, n.n, n.verb))
		}
	}
	if finished > 0 {
		parts = append(parts, fmt.Sprintf("%d %s finished", finished, schema.Verb(finished, "has", "have")))
	}
	return strings.Join(parts, ", ")
}

// holdsWords says what machines hold whose tasks move.
func holdsWords(h *intent.Holding) string {
	holds := schema.Count(h.Machines, "machine") + " " + schema.Verb(h.Machines, "holds", "hold")
	switch {
	case h.Machines == 0:
		return "the cell has no such machine"
	case h.Tasks == 0:
		return holds + " no task"
	}
	var jobs []string
	for _, j := range h.Jobs[:min(len(h.Jobs), maxListed)] {
		jobs = append(jobs, fmt.Sprintf("%d of %s", j.Tasks, j.Job))
	}
	if more := len(h.Jobs) - maxListed; more > 0 {
		jobs = append(jobs, "and those of "+schema.Count(more, "more job"))
	}
	return fmt.Sprintf("%s %s: %s", holds, schema.Count(h.Tasks, "task"), strings.Join(jobs, ", "))
}

const (
	// maxValue is how much of a value is printed for people, in characters.
	maxValue = 60
	// maxSame is how much of this may be the same in both values.
	maxSame = 20
)

// valuesOf writes two JSON values for people. Of long ones it writes the part in which they
// begin to differ.
func valuesOf(field string, old, next json.RawMessage) (was, is string) {
	a, b := []rune(valueOf(field, old)), []rune(valueOf(field, next))
	same := 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	skip := 0
	if max(len(a), len(b)) > maxValue && same > maxSame && same < max(len(a), len(b)) {
		skip = same - maxSame
	}
	cut := func(r []rune) string {
		s := string(r[skip:min(len(r), skip+maxValue)])
		if skip > 0 {
			s = "…" + s
		}
		if len(r) > skip+maxValue {
			s += "…"
		}
		return s
	}
	return cut(a), cut(b)
}

// valueOf writes a JSON value for people.
func valueOf(field string, v json.RawMessage) string {
	s := string(v)
	switch n, err := strconv.ParseInt(s, 10, 64); {
	case v == nil:
		return "none"
	case err == nil && strings.HasSuffix(field, "Bytes"):
		return exactBytes(n)
	}
	return s
}

// exactBytes writes n as CUE would, with the largest unit that leaves no rest.
func exactBytes(n int64) string {
	unit := 0
	for ; n != 0 && n%1024 == 0 && unit < 5; unit++ {
		n /= 1024
	}
	return strconv.FormatInt(n, 10) + []string{"", "Ki", "Mi", "Gi", "Ti", "Pi"}[unit]
}
