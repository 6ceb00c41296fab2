package demo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// The service's argument before and after the second commit.
const (
	oldGreeting = "hello"
	newGreeting = "good-day"
)

func firstCommit(ctx context.Context, w *world) error {
	w.shop = shop{tasks: 3, greeting: oldGreeting}
	hash, err := w.commitShop("shop: open with three tasks")
	if err != nil {
		return err
	}
	w.say("     commit %.10s adds %s", hash, shopFile)
	if err := w.converge(ctx, hash); err != nil {
		return err
	}
	w.seen, err = w.identities(ctx)
	if err != nil {
		return err
	}
	if err := w.expectTasks(w.seen, "shop/web/", 3); err != nil {
		return err
	}
	if err := w.askAll(ctx, 3, oldGreeting); err != nil {
		return err
	}
	// Tasks of a batch that run are as desired, so the cell may have converged
	// before they are done.
	err = w.until(ctx, "the batch is done", func(s *status.Status) string {
		for _, j := range s.Jobs {
			if j.Name == "shop/report" && j.Done == j.Desired {
				return ""
			}
		}
		return "it is not"
	})
	if err != nil {
		return err
	}
	return w.expectBatchDone(ctx, true)
}

func secondCommit(ctx context.Context, w *world) error {
	before := w.seen
	w.shop.tasks, w.shop.greeting = 5, newGreeting
	hash, err := w.commitShop("shop: five tasks, and a better greeting")
	if err != nil {
		return err
	}
	w.say("     commit %.10s: the 3 tasks of web must restart, 2 are new, nothing else is touched", hash)
	if err := w.converge(ctx, hash); err != nil {
		return err
	}
	if w.seen, err = w.identities(ctx); err != nil {
		return err
	}
	if err := w.expectTasks(w.seen, "shop/web/", 5); err != nil {
		return err
	}
	for name, was := range before {
		same := w.seen[name] == was
		if restarts := strings.HasPrefix(name, "shop/web/"); restarts == same {
			return fmt.Errorf("task %s: same process as before is %t, want %t", name, same, !restarts)
		}
	}
	w.say("     shop/clock/0 is still pid %d: it did not restart", w.seen["shop/clock/0"].pid)
	if err := w.askAll(ctx, 5, newGreeting); err != nil {
		return err
	}
	return w.expectBatchDone(ctx, false)
}

func killTask(ctx context.Context, w *world) error {
	const victim = "shop/web/1"
	was := w.seen[victim]
	if err := syscall.Kill(was.pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill %s (pid %d): %w", victim, was.pid, err)
	}
	var history string
	err := w.until(ctx, victim+" runs again", func(s *status.Status) string {
		for _, t := range s.Tasks {
			if t.Name == victim {
				history = strings.Join(t.History, "; ")
				if t.State != "running" || t.PID == was.pid {
					return fmt.Sprintf("it is %s, pid %d", t.State, t.PID)
				}
				if !strings.Contains(history, "SIGKILL") {
					return fmt.Sprintf("its history has no SIGKILL: %q", history)
				}
				return ""
			}
		}
		return "no such task"
	})
	if err != nil {
		return err
	}
	w.say("     %s was pid %d; it is running again, and its history says: %s", victim, was.pid, history)
	if err := w.convergeAgain(ctx); err != nil {
		return err
	}
	now, err := w.identities(ctx)
	if err != nil {
		return err
	}
	if err := sameBut(w.seen, now, victim); err != nil {
		return err
	}
	w.seen = now
	return w.askAll(ctx, 5, newGreeting)
}

func badCommits(ctx context.Context, w *world) error {
	good := w.shop
	for _, bad := range []struct {
		what   string
		commit func() (string, error)
		says   func(s *status.Status) string // what the status says, "" while it does not
	}{
		{"does not compile", func() (string, error) {
			w.shop = good
			w.shop.extra = "\njob: web: task: graceSeconds: \"five\"\n"
			return w.commitShop("shop: a word where a number belongs")
		}, staleSays("teams/shop")},
		{"asks for 50 tasks where the quota is 10", func() (string, error) {
			w.shop = good
			w.shop.tasks = 50
			return w.commitShop("shop: fifty tasks")
		}, rejectedSays("shop/web")},
		{"lets the ads team declare a job of the user shop", func() (string, error) {
			w.shop = good
			return w.commit("ads: a job in another's name", map[string][]byte{
				shopFile: []byte(w.shop.cue(w.path("bin", "muster"))),
				adsFile:  []byte(strings.ReplaceAll(roundCUE(1), `user: "ads"`, `user: "shop"`)),
			})
		}, staleSays("teams/ads")},
	} {
		hash, err := bad.commit()
		if err != nil {
			return err
		}
		var says string
		err = w.until(ctx, "the status shows what is wrong", func(s *status.Status) string {
			if says = bad.says(s); s.Commit != hash || says == "" {
				return fmt.Sprintf("head %.10s, stale %d, rejected %d", s.Commit, len(s.Stale), len(s.Rejected))
			}
			return ""
		})
		if err != nil {
			return err
		}
		w.say("     commit %.10s %s. `muster status`:\n%s", hash, bad.what, indent(says))
		now, err := w.identities(ctx)
		if err != nil {
			return err
		}
		if err := sameBut(w.seen, now, ""); err != nil {
			return fmt.Errorf("a commit that %s touched what runs: %w", bad.what, err)
		}
	}
	w.say("     all %d processes are the ones from before", len(w.seen))
	w.shop = good
	hash, err := w.commit("back to what was good", map[string][]byte{adsFile: nil})
	if err != nil {
		return err
	}
	return w.converge(ctx, hash)
}

func killMaster(ctx context.Context, w *world) error {
	was := w.master.cmd.Process.Pid
	if err := w.master.stop(ctx, syscall.SIGKILL); err != nil {
		return err
	}
	if err := w.alive(); err != nil {
		return fmt.Errorf("with the master gone: %w", err)
	}
	w.say("     master pid %d is gone; its %d tasks run on", was, len(w.seen))
	begin := time.Now()
	if err := w.startMaster(ctx); err != nil {
		return err
	}
	if err := w.convergeAgain(ctx); err != nil {
		return err
	}
	took := time.Since(begin)
	now, err := w.identities(ctx)
	if err != nil {
		return err
	}
	if err := sameBut(w.seen, now, ""); err != nil {
		return err
	}
	w.say("     a new master, pid %d, led a converged cell %.2f s after its start; every pid and start time is the same", w.master.cmd.Process.Pid, took.Seconds())
	return w.expectBatchDone(ctx, false)
}

// rounds is how many commits are timed.
const rounds = 5

func timeCommits(ctx context.Context, w *world) error {
	for r := 1; r <= rounds; r++ {
		begin := time.Now()
		hash, err := w.commit(fmt.Sprintf("ads: %d more jobs", roundJobs), map[string][]byte{adsFile: []byte(roundCUE(r))})
		if err != nil {
			return err
		}
		if err := w.converge(ctx, hash); err != nil {
			return err
		}
		w.res.Commits = append(w.res.Commits, time.Since(begin))
	}
	now, err := w.identities(ctx)
	if err != nil {
		return err
	}
	if err := w.expectTasks(now, "ads/", rounds*roundJobs); err != nil {
		return err
	}
	ms := make([]string, 0, rounds)
	for _, d := range w.res.Commits {
		ms = append(ms, fmt.Sprintf("%d ms", d.Milliseconds()))
	}
	w.say("     from `git commit` until all tasks run: %s; median %d ms", strings.Join(ms, ", "), w.res.Median().Milliseconds())
	maps.DeleteFunc(now, func(name string, _ identity) bool { return strings.HasPrefix(name, "ads/") })
	return sameBut(w.seen, now, "")
}

func removeAll(ctx context.Context, w *world) error {
	all, err := w.identities(ctx)
	if err != nil {
		return err
	}
	if _, err := w.commit("everything must go", map[string][]byte{shopFile: nil, adsFile: nil}); err != nil {
		return err
	}
	held := 0
	err = w.until(ctx, "the cell holds what is gone", func(s *status.Status) string {
		if held = 0; len(s.Held) == 0 {
			return "nothing is held"
		}
		for i := range s.Held {
			held += s.Held[i].Tasks
		}
		return ""
	})
	if err != nil {
		return err
	}
	for name, id := range all {
		if now, err := identify(id.pid); err != nil || now != id {
			return fmt.Errorf("task %s (pid %d) ended though its removal is held", name, id.pid)
		}
	}
	w.say("     %d tasks would go at once: they are held, and run on, until a commit confirms it", held)
	hash, err := w.commit(fmt.Sprintf("it is meant\n\n%s: %d", schema.AllowPruneTrailer, held), nil)
	if err != nil {
		return err
	}
	if err := w.converge(ctx, hash); err != nil {
		return err
	}
	for name, id := range all {
		if now, err := identify(id.pid); err == nil && now == id {
			return fmt.Errorf("task %s (pid %d) still runs", name, id.pid)
		}
	}
	if err := w.expectSaid(ctx, "shop/web/0", "stopping"); err != nil {
		return fmt.Errorf("the service did not get SIGTERM: %w", err)
	}
	w.say("     all %d tasks got SIGTERM and have stopped", len(all))
	if err := w.expectStoreEmpty(ctx); err != nil {
		return err
	}
	return w.expectNothingLeft(ctx)
}

// staleSays returns what the status says about a stale directory: where, what, and the way
// out.
func staleSays(dir string) func(*status.Status) string {
	return func(s *status.Status) string {
		for _, p := range s.Stale {
			for _, d := range p.Diagnostics {
				if p.Dir == dir && d.Line > 0 && d.Column > 0 && (d.Hint != "" || d.Expected != "") {
					return schema.WithHint(d.Error(), d.Hint) + "\nnext: " + p.Next
				}
			}
		}
		return ""
	}
}

// rejectedSays is staleSays for a job that was not admitted.
func rejectedSays(job string) func(*status.Status) string {
	return func(s *status.Status) string {
		for _, r := range s.Rejected {
			if d := r.Diagnostic; r.Job == job && d.Line > 0 && d.Column > 0 && d.Hint != "" {
				return schema.WithHint(d.Error(), d.Hint) + "\nnext: " + r.Next
			}
		}
		return ""
	}
}

// sameBut errs unless now has the same tasks as was, each the same process,
// but for the task named except.
func sameBut(was, now map[string]identity, except string) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if n, ok := now[name]; name != except && (!ok || n != was[name]) {
			errs = append(errs, fmt.Errorf("task %s was pid %d (start %s), now %d (start %s)", name, was[name].pid, was[name].start, n.pid, n.start))
		}
	}
	if len(now) != len(was) {
		errs = append(errs, fmt.Errorf("%d tasks ran, now %d", len(was), len(now)))
	}
	return errors.Join(errs...)
}

func indent(s string) string {
	return "       " + strings.ReplaceAll(s, "\n", "\n       ")
}
