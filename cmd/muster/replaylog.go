package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler/checkpoint"
	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/reconciler/replay"
	"github.com/musterhq/muster/schema"
)

// replayedLog is what `muster simulate replay EVENTS -o json` prints. Field names are stable;
// version is that of all of them.
type replayedLog struct {
	Version int       `json:"version"`
	Cell    string    `json:"cell"`
	At      time.Time `json:"at"`      // when the cell was saved
	Applied string    `json:"applied"` // commit that it ran then
	*replay.Result
	// Reached is where it has stopped; left out if no condition came true.
	Reached *reachedCondition `json:"reached,omitempty"`
	Notes   []string          `json:"notes"` // on what is assumed
}

// replayLog replays an event log, and prints what comes of it.
func (f *replayFlags) replayLog(ctx context.Context, std stdio, file string) error {
	out, err := f.playLog(ctx, file)
	if err != nil {
		return err
	}
	if f.out.value == "json" {
		err = printJSON(std.out, out)
	} else {
		err = f.printLog(std, out)
	}
	if err == nil && (len(out.Differences) > 0 || len(f.conditions) > 0 && out.Reached == nil) {
		return &failure{code: exitDiffers}
	}
	return err
}

func (f *replayFlags) playLog(ctx context.Context, file string) (*replayedLog, error) {
	if f.against == "" {
		return nil, invalid("give --against FILE that `muster checkpoint save` wrote before", "%s: an event log is replayed on the cell as it was before", file)
	}
	saved, err := f.onCell(ctx)
	if err != nil {
		return nil, err
	}
	records, err := readEvents(file)
	if err != nil {
		return nil, err
	}
	repo, err := git.Open(ctx, git.Config{URL: f.repo, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, &failure{code: exitInvalid, err: err}
	}
	compiler, err := newCompiler(nil)
	if err != nil {
		return nil, err
	}
	out := &replayedLog{Version: plan.Version, Cell: saved.Cell, At: saved.At, Applied: saved.State.Head.Commit, Notes: []string{}}
	if first := records[0].At; first.After(saved.At) && records[0].ID > saved.LastEvent+1 {
		out.Notes = append(out.Notes, fmt.Sprintf("the log begins at %s, and the cell was saved at %s: what happened between is not in it", first.UTC().Format(time.RFC3339), saved.At.UTC().Format(time.RFC3339)))
	}
	commits := replayOf{repo: repo, compiler: compiler, redactor: checkpoint.NewRedactor(saved.Redaction), last: out.Applied, known: seenNames{}}
	var declaring sync.Mutex
	played, err := computed(ctx, func() (*replay.Played, error) {
		return replay.Play(replay.Config{
			Cell: configOf(saved), Records: records, LastEvent: saved.LastEvent, Until: f.conditions, Release: saved.Release, Plays: version,
			Commit: func(commit string) (schema.Compiled, error) {
				declaring.Lock()
				defer declaring.Unlock()
				_, c, err := commits.declares(ctx, commit)
				return c, err
			},
		})
	})
	if err != nil && ctx.Err() != nil {
		declaring.Lock() // no child that compiles is left behind
		defer declaring.Unlock()
		return nil, err
	}
	if err != nil {
		message, hint := schema.HintOf(err)
		return nil, invalid(hint, "%s: %s", file, message)
	}
	cell := played.Cell
	out.Result, out.Notes = played.Result, slices.Concat(out.Notes, silent(cell), held(played.Held))
	if cell.Breakpoint() != nil {
		out.Reached = reachedBy(cell, cell.State().Head.Commit, cell.Now().Sub(commits.taken(records, saved.At)).Seconds())
		return out, nil
	}
	return out, f.unknown(commits.known, cell)
}

// taken returns when the newest commit was applied that was taken; saved if none was.
func (r *replayOf) taken(records []schema.EventRecord, saved time.Time) time.Time {
	for i := len(records) - 1; i >= 0; i-- {
		if e := &records[i]; e.Kind == schema.EventApply && e.Commit == r.last && e.At.After(saved) {
			return e.At
		}
	}
	return saved
}

// readEvents reads the event log in a file.
func readEvents(file string) ([]schema.EventRecord, error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, &failure{code: exitInvalid, err: err}
	}
	defer in.Close()
	records, err := replay.Read(in)
	if err == nil && len(records) == 0 {
		err = schema.Hintf("muster events --limit 0 -o json prints one", "no event is in it")
	}
	if err != nil {
		message, hint := schema.HintOf(err)
		return nil, invalid(hint, "%s: %s", file, message)
	}
	return records, nil
}

func (f *replayFlags) printLog(std stdio, r *replayedLog) error {
	most, width := 20, columns(std.out, false)
	if f.all {
		most = len(r.Differences)
	}
	var b strings.Builder
	line := func(format string, args ...any) {
		text := strings.TrimLeft(fmt.Sprintf(format, args...), " ")
		b.WriteString(screen.Wrap(format[:len(format)-len(strings.TrimLeft(format, " "))], "    ", screen.Printable(text), width))
	}
	line("replay of %s, %s of them, on cell %s as of %s, which ran %s", schema.Count(r.Events, "event"), r.To.Sub(r.From).Round(time.Second), r.Cell, r.At.Format(time.RFC3339), short(r.Applied))
	for _, n := range r.Notes {
		line("%s", n)
	}
	b.WriteString("\nfrom outside\n")
	for _, in := range r.Inputs {
		line("  %s: %d", in.What, in.Times)
	}
	for i := range r.Skipped {
		s := &r.Skipped[i]
		line("  not played: %s %s %s: %s", s.At.UTC().Format(clock), s.What, s.Of, s.Why)
	}
	b.WriteString("\n")
	for i := range r.Differences[:min(most, len(r.Differences))] {
		printDifference(line, &r.Differences[i])
	}
	if left := len(r.Differences) - most; left > 0 {
		line("… and %s more; --all shows them", schema.Count(left, "difference"))
	}
	line("decisions: %d of the log; %d are the same, at most %.1f s apart; %s", r.Decisions, r.Same, r.Apart, schema.Count(len(r.Differences), "difference"))
	return f.printReached(std, &b, r.Reached)
}

// clock is how times of the log are written.
const clock = "15:04:05.000"

func printDifference(line func(string, ...any), d *replay.Difference) {
	said := func(e *schema.Event) string {
		if e == nil {
			return "nothing"
		}
		at := e.At.UTC().Format(clock)
		what := string(e.Kind)
		if e.Cause != "" {
			what += fmt.Sprintf(" (%s)", e.Cause)
		}
		if e.Task != "" && e.Task != d.Of {
			what += " " + e.Task
		}
		if e.Machine != "" && e.Machine != d.Of {
			what += " on " + e.Machine
		}
		return strings.Join([]string{at, what + ":", e.Message}, " ")
	}
	line("%s", d.Of)
	line("  log: %s", said(d.Logged))
	line("  replay: %s", said(d.Replayed))
	line("  why: %s", d.Why)
	if d.Further > 0 {
		line("  %s of it in the log are not compared", schema.Count(d.Further, "further decision"))
	}
}
