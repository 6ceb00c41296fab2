package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/checkpoint"
	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
)

// replayFlags say which commits are replayed, on what, and until when.
type replayFlags struct {
	planFlags
	until      []string
	conditions []plan.Condition
}

func newSimulateReplay(std stdio) *cobra.Command {
	var f replayFlags
	c := &cobra.Command{
		Use:   "replay BASE..HEAD | BASE...HEAD | EVENTS",
		Short: "print what a cell would do with commits, or with what its event log says, until something happens",
		Long: `Print what a cell would do with each commit of a range, one after the other: each is taken
when nothing happens any more after the one before. The commits are those that were the
head of the branch: of a merge, itself and nothing of what it merges. The cell is that of
--master, of a file that muster checkpoint save wrote, or, with neither, runs BASE on the
machines that the repository names, as for muster plan. The code is the master's, on
simulated machines, in virtual time.

With --until it stops at the decision with which a condition comes true, and prints why
all is so that the condition is of, as muster why does. The conditions are

  pending             a task has no machine
  preempted           a task was stopped to make room for another
  stopped             a task was stopped, or ended
  rejected            the quota does not admit a job
  blocked             a person has to act
  job USER/JOB …      the same, of one job; running: it is as desired
  task USER/JOB/N …   pending, preempted, stopped, or running
  machine NAME …      empty: it has no task; lost

The first of several stops. What holds in the beginning has to end before it stops.

EVENTS is a file with an event log, as muster events --limit 0 -o json prints it. What came
from outside happens again when the log says that it did, on the cell of --against, which was
saved before: commits, machines that join or are lost, tasks that start, fail or end, and what
operators ask for. What the master decides is compared with what it decided then; what differs
is named, with the reason. Decisions are the same up to 30 s apart.

Exits 0 when a condition came true, or none is given; 1 when none did, or a decision differs;
2 when the input is invalid.`,
		Example: `  muster simulate replay v1..main --against local.checkpoint --until 'job search/web pending'
  muster simulate replay HEAD~20..HEAD --until preempted --until 'machine m1 empty' -o json
  muster simulate replay events.json --against before.checkpoint`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.size.note(cmd)
			return f.run(cmd.Context(), std, args)
		},
	}
	f.add(c, "replay", "text", "json")
	c.Flags().StringArrayVar(&f.until, "until", nil, "stop when this `condition` comes true; may be repeated")
	return c
}

// run replays a range of commits, or an event log, and prints what comes of it.
func (f *replayFlags) run(ctx context.Context, std stdio, args []string) error {
	if err := f.parse(); err != nil {
		return err
	}
	if info, err := os.Stat(args[0]); err == nil && info.Mode().IsRegular() {
		return f.replayLog(ctx, std, args[0])
	}
	out, err := f.replay(ctx, args)
	if err != nil {
		return err
	}
	if f.out.value == "json" {
		err = printJSON(std.out, out)
	} else {
		err = f.printReplay(std, out)
	}
	if err == nil && len(f.conditions) > 0 && out.Reached == nil {
		return &failure{code: exitDiffers}
	}
	return err
}

// replayed is what `muster simulate replay -o json` prints. Field names are stable; version is
// that of all of them.
type replayed struct {
	Version int       `json:"version"`
	Cell    string    `json:"cell"`
	At      time.Time `json:"at"`      // when the cell was as it is replayed on
	Applied string    `json:"applied"` // commit that it runs then
	Base    string    `json:"base"`
	Head    string    `json:"head"`
	// Commits are those that were replayed, of Of in the range.
	Commits []replayedCommit `json:"commits"`
	Of      int              `json:"of"`
	// Reached is where it has stopped; left out if no condition came true.
	Reached *reachedCondition `json:"reached,omitempty"`
	Notes   []string          `json:"notes"` // on what is assumed
}

// replayedCommit is one commit and what followed. Field names are stable.
type replayedCommit struct {
	Commit  string            `json:"commit"`
	By      schema.Authorship `json:"by"`
	Errors  int               `json:"errors"` // in what it declares: that stays as it was
	Outcome *plan.Outcome     `json:"outcome"`
}

// reachedCondition is where a replay has stopped. Field names are stable.
type reachedCondition struct {
	Condition string   `json:"condition"`
	Commit    string   `json:"commit"`  // the newest that the cell has
	Seconds   float64  `json:"seconds"` // since that
	Names     []string `json:"names"`   // of the tasks, jobs or machines for which it has come true
	// Why explains the first of them; machines are not explained.
	Why []status.Explanation `json:"why"`
}

// maxExplained is how many tasks or jobs are explained at a breakpoint: those behind them mostly
// have the same reason.
const maxExplained = 3

// parse reads the conditions.
func (f *replayFlags) parse() error {
	for _, text := range f.until {
		condition, err := plan.ParseCondition(text)
		if err != nil {
			message, hint := schema.HintOf(err)
			return invalid(hint, "--until: %s", message)
		}
		f.conditions = append(f.conditions, condition)
	}
	return nil
}

func (f *replayFlags) replay(ctx context.Context, args []string) (*replayed, error) {
	revs, err := parseRevs(args)
	if err != nil {
		return nil, err
	}
	repo, err := git.Open(ctx, git.Config{URL: f.repo, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, &failure{code: exitInvalid, err: err}
	}
	if revs.head == "" {
		return nil, neither(ctx, repo, args[0])
	}
	saved, err := f.onCell(ctx)
	if err != nil {
		return nil, err
	}
	out := &replayed{Version: plan.Version, Commits: []replayedCommit{}, Notes: []string{}}
	if out.Base, out.Head, err = revs.resolve(ctx, repo); err != nil {
		return nil, &failure{code: exitInvalid, err: err}
	}
	commits, err := repo.Commits(ctx, out.Base, out.Head)
	if err != nil {
		message, hint := schema.HintOf(err)
		return nil, invalid(hint, "%s", message)
	}
	out.Of = len(commits)
	compiler, err := newCompiler(nil)
	if err != nil {
		return nil, err
	}
	r := replayOf{out: out, repo: repo, compiler: compiler, last: out.Base, known: seenNames{}}
	if err := f.begin(ctx, &r, saved); err != nil {
		return nil, err
	}
	out.Notes = append(out.Notes, silent(r.cell)...)
	out.Notes = append(out.Notes, held(r.cell.Until(f.conditions))...)
	for i := range commits {
		if reached, err := r.take(ctx, &commits[i]); err != nil || reached {
			return out, err
		}
	}
	return out, f.unknown(r.known, r.cell)
}

// neither says of an operand why it is no range of commits, and no event log.
func neither(ctx context.Context, repo *git.Repo, operand string) error {
	if _, err := repo.Resolve(ctx, operand); err == nil {
		return invalid("such as main~5..main; muster plan takes the work tree", "%q: want a range of commits", operand)
	}
	what := "there is no such file"
	if _, err := os.Stat(operand); err == nil {
		what = "this is no file with an event log"
	}
	return invalid("such as main~5..main, or a file that `muster events --limit 0 -o json` has printed", "%q: %s, and no such commit: want a range of commits, or an event log", operand, what)
}

// held notes which conditions hold in the beginning.
func held(texts []string) (notes []string) {
	for _, text := range texts {
		notes = append(notes, fmt.Sprintf("--until '%s' holds in the beginning: it does not stop before that has ended", text))
	}
	return notes
}

// onCell returns the cell to replay on, nil if none is named.
func (f *replayFlags) onCell(ctx context.Context) (*checkpoint.Cell, error) {
	saved, err := f.target(ctx)
	if err != nil || saved == nil {
		return nil, err
	}
	return saved, f.fits(saved)
}

// unknown errs if a condition that did not come true is of what there never was.
func (f *replayFlags) unknown(known seenNames, cell *plan.Cell) error {
	known.learn(cell)
	for i := range f.conditions {
		c := &f.conditions[i]
		if name := c.Job() + c.Machine(); name != "" && !known[name] {
			return invalid("muster render --rev COMMIT prints what a commit has", "--until '%s': cell %s never has %q", c, cell.State().Cell, name)
		}
	}
	return nil
}

// seenNames are those of jobs (user/job) and machines that a cell has had.
type seenNames map[string]bool

// learn adds what the cell has.
func (n seenNames) learn(cell *plan.Cell) {
	for name := range cell.State().Jobs {
		n[name.Short()] = true
	}
	for name := range cell.State().Machines {
		n[name] = true
	}
}

// replayOf is a replay of commits in progress.
type replayOf struct {
	out      *replayed
	repo     *git.Repo
	compiler *compile.Compiler
	redactor *checkpoint.Redactor
	cell     *plan.Cell
	last     string // commit that the cell has
	known    seenNames
}

// begin makes the cell that is replayed on: of a checkpoint, or that which the repository declares
// if saved is nil.
func (f *replayFlags) begin(ctx context.Context, r *replayOf, saved *checkpoint.Cell) (err error) {
	if saved != nil {
		r.out.Cell, r.out.At, r.out.Applied = saved.Cell, saved.At, saved.State.Head.Commit
		if r.out.Applied != r.out.Base {
			r.out.Notes = append(r.out.Notes, fmt.Sprintf("the cell runs %s, and the range begins after %s: the first commit brings all that differs", short(r.out.Applied), short(r.out.Base)))
		}
		r.last, r.redactor = r.out.Applied, checkpoint.NewRedactor(saved.Redaction)
		r.cell, err = newCell(ctx, configOf(saved))
		return err
	}
	d := &difference{Base: r.out.Base, Head: r.out.Head}
	if d.base, err = r.compile(ctx, d.Base); err != nil {
		return err
	}
	if d.head, err = r.compile(ctx, d.Head); err != nil {
		return err
	}
	p := &planned{Base: d.Base, Head: d.Head, difference: d}
	r.cell, err = f.declared(ctx, p)
	r.out.Cell, r.out.At, r.out.Applied, r.out.Notes = p.Cell, p.At, p.Applied, append(r.out.Notes, p.Notes...)
	return err
}

func (r *replayOf) compile(ctx context.Context, commit string) (*compiledRepo, error) {
	tree, err := r.repo.Tree(ctx, commit)
	if err != nil {
		return nil, err
	}
	return compileTree(ctx, r.compiler, tree, reconciler.Take)
}

// take has the cell take a commit, and follows it until nothing happens any more or a condition
// comes true.
func (r *replayOf) take(ctx context.Context, c *git.Logged) (reached bool, err error) {
	compiled, next, err := r.declares(ctx, c.Commit)
	if err != nil {
		return false, err
	}
	r.known.learn(r.cell)
	o, err := follow(ctx, r.cell, func() error { return r.cell.Commit(next) })
	if err != nil {
		return false, err
	}
	errs, _ := count(compiled.diagnostics)
	r.out.Commits = append(r.out.Commits, replayedCommit{c.Commit, c.By, errs, o})
	if o.Ending != plan.Reached {
		return false, nil
	}
	r.out.Reached = reachedBy(r.cell, c.Commit, o.Seconds)
	return true, nil
}

// declares returns what a commit declares, as the cell takes it that has the one before.
func (r *replayOf) declares(ctx context.Context, commit string) (*compiledRepo, schema.Compiled, error) {
	compiled, err := r.compile(ctx, commit)
	if err != nil {
		return nil, schema.Compiled{}, fmt.Errorf("commit %s: %w", short(commit), err)
	}
	next := r.redactor.Commit(compiled.compiled)
	next.Commit = commit
	next.Trailers, err = r.repo.Trailers(ctx, r.last, commit)
	r.last = commit
	return compiled, next, err
}

// reachedBy returns where a cell has stopped, so long after a commit.
func reachedBy(cell *plan.Cell, commit string, after float64) *reachedCondition {
	stop := cell.Breakpoint()
	out := &reachedCondition{Condition: stop.Condition, Commit: commit, Seconds: after, Names: stop.Names, Why: []status.Explanation{}}
	for _, name := range stop.Names[:min(len(stop.Names), maxExplained)] {
		if why, known := cell.Why(name); known {
			out.Why = append(out.Why, why)
		}
	}
	return out
}

func (f *replayFlags) printReplay(std stdio, r *replayed) error {
	most, width := 20, columns(std.out, false)
	if f.all {
		most = 0
	}
	var b strings.Builder
	line := func(format string, args ...any) {
		b.WriteString(screen.Wrap("", "  ", screen.Printable(fmt.Sprintf(format, args...)), width))
	}
	line("replay of %s on cell %s as of %s, which runs %s", schema.Count(r.Of, "commit"), r.Cell, r.At.Format(time.RFC3339), short(r.Applied))
	for _, n := range r.Notes {
		line("%s", n)
	}
	for i := range r.Commits {
		c := &r.Commits[i]
		b.WriteString("\n")
		line("commit %s (%d of %d): %s", short(c.Commit), i+1, r.Of, c.By.Subject)
		if c.Errors > 0 {
			line("it has %s: what these are of stays as it was; muster validate --rev %s prints them", schema.Count(c.Errors, "error"), short(c.Commit))
		}
		for _, s := range screen.Plan(c.Outcome, width, most) {
			b.WriteString(s.Title + "\n" + s.Text)
		}
		line("%s", screen.PlanHead(c.Outcome))
	}
	b.WriteString("\n")
	if len(f.conditions) == 0 {
		line("%s replayed", schema.Count(len(r.Commits), "commit"))
	}
	return f.printReached(std, &b, r.Reached)
}

// printReached writes what is in b, and where a replay with conditions has stopped.
func (f *replayFlags) printReached(std stdio, b *strings.Builder, at *reachedCondition) error {
	text := ""
	switch {
	case at != nil:
		text = fmt.Sprintf("reached: %s, after %s of commit %s: %s", at.Condition, seconds(at.Seconds), short(at.Commit), screen.Names(at.Names, maxExplained))
	case len(f.conditions) > 0:
		texts := make([]string, 0, len(f.conditions))
		for i := range f.conditions {
			texts = append(texts, f.conditions[i].String())
		}
		text = "not reached: " + strings.Join(texts, "; ")
	}
	if text != "" {
		b.WriteString(screen.Wrap("", "  ", screen.Printable(text), columns(std.out, false)))
	}
	_, err := std.out.Write([]byte(b.String()))
	if at != nil {
		for i := range at.Why {
			err = errors.Join(err, printWhy(explainTo{std.out, f.out.value}, &at.Why[i]))
		}
	}
	return err
}

// seconds writes a time for people.
func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Millisecond).String()
}
