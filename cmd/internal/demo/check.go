package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/schema"
)

// converge waits until the cell is as commit says.
func (w *world) converge(ctx context.Context, commit string) error {
	return w.until(ctx, "the cell converges", func(s *status.Status) string {
		if s.Commit == commit && s.Applied == commit && s.Converged {
			return ""
		}
		if s.Commit != commit {
			return fmt.Sprintf("head seen is %.10s, want %.10s", s.Commit, commit)
		}
		return strings.Join(s.Waiting, "; ")
	})
}

// convergeAgain waits until the cell is as the commit says that it is at.
func (w *world) convergeAgain(ctx context.Context) error {
	return w.until(ctx, "the cell converges", func(s *status.Status) string {
		if s.Converged && s.Commit != "" {
			return ""
		}
		return strings.Join(append(s.Waiting, s.Source), "; ")
	})
}

// identities asks the cell which processes its running tasks are, and the
// process table whether that is so. Those of batch jobs may end at any moment, and
// are left out.
func (w *world) identities(ctx context.Context) (map[string]identity, error) {
	s, err := w.status(ctx)
	if err != nil {
		return nil, err
	}
	out, passing := map[string]identity{}, map[string]bool{}
	for i := range s.Jobs {
		passing[s.Jobs[i].Name] = s.Jobs[i].Kind == schema.Batch
	}
	for _, t := range s.Tasks {
		for _, p := range t.Ports {
			w.ports[p.Port] = true
		}
		if t.State != "running" || passing[path.Dir(t.Name)] {
			continue
		}
		id, err := identify(t.PID)
		if err != nil {
			return nil, fmt.Errorf("task %s is running, says the status: %w", t.Name, err)
		}
		out[t.Name] = id
		for _, group := range cgroupsOf(t.PID) {
			w.cgroups[group] = true
		}
	}
	return out, nil
}

// alive errs unless every process that was seen last still runs.
func (w *world) alive() error {
	for name, id := range w.seen {
		if now, err := identify(id.pid); err != nil || now != id {
			return fmt.Errorf("task %s (pid %d) has ended", name, id.pid)
		}
	}
	return nil
}

// expectTasks errs unless ids has n tasks whose name starts with prefix.
func (w *world) expectTasks(ids map[string]identity, prefix string, n int) error {
	have := 0
	for name := range ids {
		if strings.HasPrefix(name, prefix) {
			have++
		}
	}
	if have != n {
		return fmt.Errorf("%d tasks %s* run, want %d", have, prefix, n)
	}
	return nil
}

// askAll asks each task of the service on the port it was given, and wants its
// own name and the greeting in the answer.
func (w *world) askAll(ctx context.Context, n int, greeting string) error {
	s, err := w.status(ctx)
	if err != nil {
		return err
	}
	asked := 0
	var first string
	for _, t := range s.Tasks {
		if !strings.HasPrefix(t.Name, "shop/web/") {
			continue
		}
		port, _ := t.Ports.Get("http")
		url := fmt.Sprintf("http://127.0.0.1:%d/", port)
		body, err := get(ctx, url)
		if err != nil {
			return fmt.Errorf("task %s at %s: %w", t.Name, url, err)
		}
		// Its pid is that of its own namespace, if it has one.
		want := fmt.Sprintf("%s from %s pid ", greeting, t.Name)
		if !strings.HasPrefix(body, want) {
			return fmt.Errorf("task %s at %s answers %q, want %q first", t.Name, url, body, want)
		}
		if asked++; first == "" {
			first = fmt.Sprintf("%s answers %q", url, strings.TrimSpace(body))
		}
	}
	if asked != n {
		return fmt.Errorf("%d tasks of shop/web answered, want %d", asked, n)
	}
	w.say("     %s; so do the other %d", first, n-1)
	return nil
}

func get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	return string(b), err
}

// expectBatchDone errs unless the batch job's 5 indices are done, each run exactly once, as
// their logs show.
func (w *world) expectBatchDone(ctx context.Context, announce bool) error {
	s, err := w.status(ctx)
	if err != nil {
		return err
	}
	for _, j := range s.Jobs {
		if j.Name == "shop/report" && (j.Done != 5 || j.Running+j.Pending+j.Failed != 0) {
			return fmt.Errorf("job shop/report: %d of 5 done, %d running, %d pending, %d failed", j.Done, j.Running, j.Pending, j.Failed)
		}
	}
	for _, t := range s.Tasks {
		if strings.HasPrefix(t.Name, "shop/report/") && (t.Restarts != 0 || t.Incarnation > 1) {
			return fmt.Errorf("task %s has run more than once", t.Name)
		}
	}
	if err := w.expectSaid(ctx, "shop/report/4", "counted shelf 4"); err != nil {
		return err
	}
	if announce {
		w.say("     the batch job's 5 indices are done, and stay done; `muster logs shop/report/4` prints what the last wrote")
	}
	return nil
}

// expectSaid errs unless the task's stdout, from the cell's logs, has words
// exactly once.
func (w *world) expectSaid(ctx context.Context, task, words string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := w.api.Logs(ctx, task, schema.LogRequest{Stream: schema.Stdout, Tail: -1})
	if err != nil {
		return err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("log of %s: %w", task, err)
	}
	if n := strings.Count(string(b), words); n != 1 {
		return fmt.Errorf("log of %s has %q %d times, want once: %q", task, words, n, b)
	}
	return nil
}

// expectStoreEmpty stops the master and reads its store: no job, task or job
// data is left in it.
func (w *world) expectStoreEmpty(ctx context.Context) error {
	if err := w.master.stop(ctx, syscall.SIGTERM); err != nil {
		return err
	}
	s, err := store.OpenEmbedded(ctx, store.EmbeddedConfig{Dir: w.path("master"), Cell: cellName, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	docs, err := s.Load(ctx)
	if cerr := s.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	for key := range docs {
		switch kind, _, _ := strings.Cut(key, "/"); kind {
		case "job", "chunk", "data":
			return fmt.Errorf("the store still has %s", key)
		}
	}
	return nil
}

// expectNothingLeft stops the agent and looks for what the cell may have left
// on the machine.
func (w *world) expectNothingLeft(ctx context.Context) error {
	if err := w.agent.stop(ctx, syscall.SIGTERM); err != nil {
		return err
	}
	checks := []struct {
		what string
		list func() ([]string, error)
	}{
		{"process", func() ([]string, error) { return processesOf(w.dir) }},
		{"cgroup", func() ([]string, error) { return existingCgroups(w.cgroups) }},
		{"mount", func() ([]string, error) { return mountsOf(w.dir) }},
		{"port", w.portsTaken},
		{"socket", w.sockets},
	}
	for _, c := range checks {
		err := within(ctx, 5*time.Second, func() error {
			left, err := c.list()
			if err == nil && len(left) > 0 {
				err = fmt.Errorf("%s left behind: %s", c.what, strings.Join(left, ", "))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	w.say("     nothing is left: no process, cgroup, mount, port or socket")
	return nil
}

// portsTaken lists the ports that tasks had and that something still holds.
func (w *world) portsTaken() ([]string, error) {
	var out []string
	for p := range w.ports {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(p)))
		if err != nil {
			out = append(out, strconv.Itoa(p))
			continue
		}
		l.Close()
	}
	return out, nil
}

// sockets lists the unix sockets in the demo's directory.
func (w *world) sockets() ([]string, error) {
	var out []string
	err := filepath.WalkDir(w.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type()&os.ModeSocket != 0 {
			out = append(out, path)
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
	return out, err
}
