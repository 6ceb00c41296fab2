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
		Use:   "replay BASE..HEAD | BASE...HEAD",
		Short: "print what a cell would do with each commit of a range, until something happens",
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

Exits 0 when a condition came true, or none is given; 1 when none did; 2 when the input
is invalid.`,
		Example: `  muster simulate replay v1..main --against local.checkpoint --until 'job search/web pending'
  muster simulate replay HEAD~20..HEAD --until preempted --until 'machine m1 empty' -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.size.note(cmd)
			out, err := f.replay(cmd.Context(), args)
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
		},
	}
	f.master.add(c)
	f.size.add(c)
	f.out = addOutput(c, "text", "json")
	c.Flags().StringVar(&f.against, "against", "", "replay on the cell in a `file` that muster checkpoint save wrote")
	c.Flags().StringVar(&f.cell, "cell", "", "cell to replay on without --against and --master, if the repository declares several")
	c.Flags().StringVar(&f.repo, "repo", ".", "directory of the config repository")
	c.Flags().StringArrayVar(&f.until, "until", nil, "stop when this `condition` comes true; may be repeated")
	c.Flags().BoolVar(&f.all, "all", false, "show all tasks, however many lines that takes")
	return c
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

	known map[string]bool // names of jobs (user/job) and machines
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

func (f *replayFlags) replay(ctx context.Context, args []string) (*replayed, error) {
	revs, err := parseRevs(args)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(args[0]); err == nil && info.Mode().IsRegular() {
		return nil, invalid("give a range of commits, such as main~5..main", "%s is a file: an event log is not supported, since it does not have what machines offered when they joined", args[0])
	}
	if revs.head == "" {
		return nil, invalid("such as main~5..main; muster plan takes the work tree", "%q: want a range of commits", args[0])
	}
	for _, text := range f.until {
		condition, err := plan.ParseCondition(text)
		if err != nil {
			message, hint := schema.HintOf(err)
			return nil, invalid(hint, "--until: %s", message)
		}
		f.conditions = append(f.conditions, condition)
	}
	saved, err := f.onCell(ctx)
	if err != nil {
		return nil, err
	}
	repo, err := git.Open(ctx, git.Config{URL: f.repo, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, &failure{code: exitInvalid, err: err}
	}
	out := &replayed{Version: plan.Version, Commits: []replayedCommit{}, Notes: []string{}, known: map[string]bool{}}
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
	r := replay{out: out, repo: repo, compiler: compiler, last: out.Base}
	if err := f.begin(ctx, &r, saved); err != nil {
		return nil, err
	}
	out.Notes = append(out.Notes, silent(r.cell)...)
	for _, text := range r.cell.Until(f.conditions) {
		out.Notes = append(out.Notes, fmt.Sprintf("--until '%s' holds in the beginning: it does not stop before that has ended", text))
	}
	for i := range commits {
		if reached, err := r.take(ctx, &commits[i]); err != nil || reached {
			return out, err
		}
	}
	return out, f.unknown(&r)
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
func (f *replayFlags) unknown(r *replay) error {
	r.learn()
	for i := range f.conditions {
		c := &f.conditions[i]
		if name := c.Job() + c.Machine(); name != "" && !r.out.known[name] {
			return invalid("muster render --rev COMMIT prints what a commit has", "--until '%s': cell %s never has %q", c, r.out.Cell, name)
		}
	}
	return nil
}

// replay is a replay in progress.
type replay struct {
	out      *replayed
	repo     *git.Repo
	compiler *compile.Compiler
	redactor *checkpoint.Redactor
	cell     *plan.Cell
	last     string // commit that the cell has
}

// begin makes the cell that is replayed on: of a checkpoint, or that which the repository declares
// if saved is nil.
func (f *replayFlags) begin(ctx context.Context, r *replay, saved *checkpoint.Cell) (err error) {
	if saved != nil {
		r.out.Cell, r.out.At, r.out.Applied = saved.Cell, saved.At, saved.State.Head.Commit
		if r.out.Applied != r.out.Base {
			r.out.Notes = append(r.out.Notes, fmt.Sprintf("the cell runs %s, and the range begins after %s: the first commit brings all that differs", short(r.out.Applied), short(r.out.Base)))
		}
		r.last, r.redactor = r.out.Applied, checkpoint.NewRedactor(saved.Redaction)
		r.cell, err = plan.New(configOf(saved))
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
	r.cell, err = f.declared(p)
	r.out.Cell, r.out.At, r.out.Applied, r.out.Notes = p.Cell, p.At, p.Applied, append(r.out.Notes, p.Notes...)
	return err
}

func (r *replay) compile(ctx context.Context, commit string) (*compiledRepo, error) {
	tree, err := r.repo.Tree(ctx, commit)
	if err != nil {
		return nil, err
	}
	return compileTree(ctx, r.compiler, tree, reconciler.Take)
}

// take has the cell take a commit, and follows it until nothing happens any more or a condition
// comes true.
func (r *replay) take(ctx context.Context, c *git.Logged) (reached bool, err error) {
	compiled, err := r.compile(ctx, c.Commit)
	if err != nil {
		return false, fmt.Errorf("commit %s: %w", short(c.Commit), err)
	}
	next := r.redactor.Commit(compiled.compiled)
	next.Commit = c.Commit
	if next.Trailers, err = r.repo.Trailers(ctx, r.last, c.Commit); err != nil {
		return false, err
	}
	r.learn()
	r.last = c.Commit
	mark := r.cell.Mark()
	if err := r.cell.Commit(next); err != nil {
		return false, err
	}
	ending, at, err := r.cell.Run()
	if err != nil {
		return false, err
	}
	errs, _ := count(compiled.diagnostics)
	o := r.cell.Outcome(mark, ending, at)
	r.out.Commits = append(r.out.Commits, replayedCommit{c.Commit, c.By, errs, o})
	if ending != plan.Reached {
		return false, nil
	}
	stop := r.cell.Breakpoint()
	r.out.Reached = &reachedCondition{Condition: stop.Condition, Commit: c.Commit, Seconds: o.Seconds, Names: stop.Names, Why: []status.Explanation{}}
	for _, name := range stop.Names[:min(len(stop.Names), maxExplained)] {
		if why, known := r.cell.Why(name); known {
			r.out.Reached.Why = append(r.out.Reached.Why, why)
		}
	}
	return true, nil
}

// learn notes which jobs and machines the cell has.
func (r *replay) learn() {
	for name := range r.cell.State().Jobs {
		r.out.known[name.Short()] = true
	}
	for name := range r.cell.State().Machines {
		r.out.known[name] = true
	}
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
	switch at := r.Reached; {
	case at != nil:
		line("reached: %s, after %s of commit %s: %s", at.Condition, seconds(at.Seconds), short(at.Commit), screen.Names(at.Names, maxExplained))
	case len(f.conditions) > 0:
		texts := make([]string, 0, len(f.conditions))
		for i := range f.conditions {
			texts = append(texts, f.conditions[i].String())
		}
		line("not reached: %s", strings.Join(texts, "; "))
	default:
		line("%s replayed", schema.Count(len(r.Commits), "commit"))
	}
	_, err := std.out.Write([]byte(b.String()))
	if r.Reached != nil {
		for i := range r.Reached.Why {
			err = errors.Join(err, printWhy(explainTo{std.out, f.out.value}, &r.Reached.Why[i]))
		}
	}
	return err
}

// seconds writes a time for people.
func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Millisecond).String()
}
