package demo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema/scaffold"
)

// patience is how long the demo waits for something that takes well under a
// second on an idle machine, and longer on a busy one.
const patience = 60 * time.Second

// world is the cell of the demo, and what the demo knows of it.
type world struct {
	cfg  Config
	res  *Result
	dir  string
	repo string // the config repository

	master, agent *daemon
	url           string
	api           *client.Client

	shop    shop
	ports   map[int]bool    // every port a task was given
	cgroups map[string]bool // every cgroup a task was in
	seen    map[string]identity
}

func newWorld(cfg Config, res *Result) (*world, error) {
	dir, err := makeDir(cfg)
	if err != nil {
		return nil, err
	}
	return &world{cfg: cfg, res: res, dir: dir, repo: filepath.Join(dir, "config"), ports: map[int]bool{}, cgroups: map[string]bool{}}, nil
}

func (w *world) path(elem ...string) string {
	return filepath.Join(append([]string{w.dir}, elem...)...)
}

// setUp writes the config repository and starts the cell.
func (w *world) setUp(ctx context.Context) error {
	if err := os.Mkdir(w.path("bin"), 0o755); err != nil { //nolint:gosec // tasks of any user run what is in it
		return err
	}
	if err := copyBinary(filepath.Join(w.cfg.Bin, "muster"), w.path("bin", "muster")); err != nil {
		return err
	}
	if err := w.initRepo(); err != nil {
		return err
	}
	w.say("A config repository as `muster init` writes it: %s", w.repo)
	if err := w.startMaster(ctx); err != nil {
		return err
	}
	a, err := start(w.path("agent.log"), nil, syscall.SIGINT, filepath.Join(w.cfg.Bin, "muster-agent"),
		"--cell", cellName, "--master", "unix:"+w.path("link", "agent.sock"), "--name", "this-machine", "--state-dir", w.path("agent"))
	if err != nil {
		return err
	}
	w.agent = a
	err = w.until(ctx, "the agent joins", func(s *status.Status) string {
		for _, m := range s.Machines {
			if m.Health == "up" {
				return ""
			}
		}
		return "no machine is up"
	})
	if err != nil {
		return err
	}
	w.say("A cell: master pid %d with its store, agent pid %d. Look for yourself: muster status --master %s", w.master.cmd.Process.Pid, w.agent.cmd.Process.Pid, w.url)
	return w.sayNotes(ctx)
}

// sayNotes prints what this machine does not support, from the status.
func (w *world) sayNotes(ctx context.Context) error {
	s, err := w.status(ctx)
	if err != nil {
		return err
	}
	for _, m := range s.Machines {
		for _, n := range m.Notes {
			w.say("Note: %s", n)
		}
	}
	return nil
}

// initRepo writes what `muster init` writes, with the demo's own cell and
// tenants instead of the example's, and no jobs.
func (w *world) initRepo() error {
	files, err := scaffold.Files(module, cellName)
	if err != nil {
		return err
	}
	maps.DeleteFunc(files, func(path string, _ []byte) bool {
		return strings.HasSuffix(path, ".cue") && !strings.HasPrefix(path, "cue.mod/") && !strings.HasPrefix(path, "muster/")
	})
	files["cells/demo.cue"] = []byte(cellCUE)
	files["tenants.cue"] = []byte(tenantsCUE)
	if err := git.Init(w.repo, "main"); err != nil {
		return err
	}
	_, err = w.commit("an empty cell with two teams", files)
	return err
}

// commit commits files; a nil value removes one.
func (w *world) commit(message string, files map[string][]byte) (string, error) {
	return git.Commit(w.repo, git.Change{
		Message: message, Files: files, Empty: files == nil, Author: "muster demo", Email: "demo@example.com", When: time.Now(),
	})
}

// commitShop commits the shop team's file as w.shop says.
func (w *world) commitShop(message string) (string, error) {
	return w.commit(message, map[string][]byte{shopFile: []byte(w.shop.cue(w.path("bin", "muster")))})
}

// startMaster starts the master and learns where its API is.
func (w *world) startMaster(ctx context.Context) error {
	first := make(chan string, 1)
	m, err := start(w.path("master.log"), first, syscall.SIGTERM, filepath.Join(w.cfg.Bin, "muster"), "master",
		"--cell", cellName, "--repo", w.repo, "--data-dir", w.path("master"), "--listen", "127.0.0.1:0", "--link", w.path("link", "agent.sock"))
	if err != nil {
		return err
	}
	w.master = m
	select {
	case line := <-first:
		_, url, ok := strings.Cut(line, " at ")
		if !ok {
			return fmt.Errorf("the master did not start (it said %q); its log: %s", line, m.log)
		}
		w.url = url
		w.api, err = client.New(url)
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// status asks the master.
func (w *world) status(ctx context.Context) (*status.Status, error) {
	s, _, err := w.api.Status(ctx, client.StatusQuery{})
	return s, err
}

// until waits until missing returns "" for the cell's status; what it returns
// otherwise is shown as progress, and is the error when patience ends.
func (w *world) until(ctx context.Context, what string, missing func(*status.Status) string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var version uint64
	why := "the master has not answered yet"
	for {
		s, v, err := w.api.Status(ctx, client.StatusQuery{After: version, Wait: 5 * time.Second})
		switch {
		case err == nil:
			version = v
			if why = missing(s); why == "" {
				return nil
			}
		case ctx.Err() == nil:
			why, version = err.Error(), 0
			// The master is starting; its API refuses until it listens.
			pause(ctx, 50*time.Millisecond)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("waited %s for this: %s; last: %s", patience, what, why)
		}
		w.cfg.Progress(what, why)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// close stops what still runs and removes the demo's directory. After the last
// step there is nothing left to stop; after a failed one there may be.
func (w *world) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var errs []error
	if w.master != nil {
		errs = append(errs, w.master.stop(ctx, syscall.SIGTERM))
	}
	if w.agent != nil {
		// SIGINT stops the tasks as well; SIGTERM would leave them running.
		errs = append(errs, w.agent.stop(ctx, syscall.SIGINT))
	}
	if w.cfg.Keep {
		w.say("\nKept: %s", w.dir)
	} else {
		errs = append(errs, os.RemoveAll(w.dir))
	}
	return errors.Join(errs...)
}
