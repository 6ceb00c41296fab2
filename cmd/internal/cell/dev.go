package cell

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/musterhq/muster/nodeagent/hollow"
	"github.com/musterhq/muster/reconciler/git"
)

// apiSocket names the API's unix socket, beside that of the agent link.
const apiSocket = "api.sock"

// maxSocketPath is the longest path of a unix socket, in bytes (unix(7):
// sun_path is 108 with its final zero).
const maxSocketPath = 107

// hollowSeed makes the hollow machines of one dev cell those of the next.
const hollowSeed = 1

// DevConfig says how a whole cell runs on this machine.
type DevConfig struct {
	// Master is the master's part. DataDir is where all state is kept; "" is
	// a directory that belongs to the repository and is removed when the cell
	// is stopped in order. Link is not used.
	Master MasterConfig
	// Agent is the agent's binary, and AgentArgs further arguments for it.
	Agent     string
	AgentArgs []string
	Stderr    io.Writer // of the agent
	// Hollow is a number of hollow machines to run in place of the agent; 0: none.
	Hollow int
}

// RunDev runs a master and an agent until ctx ends; then it stops all tasks.
// The agent is a process of its own, as on any machine of a cell, and is
// started again when it ends. When this process is killed, so is the agent, and
// the tasks run on until the next RunDev on the same state adopts them.
func RunDev(ctx context.Context, cfg DevConfig) error {
	dir := cfg.Master.DataDir
	ours := dir == ""
	if ours {
		var err error
		if dir, err = devDir(cfg.Master.Repo); err != nil {
			return err
		}
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if cfg.Master.Worktree {
		if err := checkApart(cfg.Master.Repo, dir); err != nil {
			return err
		}
	}
	// Asked before a directory is made for it.
	if _, err := cfg.Master.openRepository(ctx, dir, false); err != nil {
		return err
	}
	if err := cfg.checkAgent(ctx); err != nil {
		return err
	}
	if err := checkSocketPath(socketPath(dir), "set TMPDIR, or give --data-dir, to a directory with a shorter path"); err != nil {
		return err
	}
	_, missing := os.Stat(dir)
	if err := os.MkdirAll(dir, 0o711); err != nil { //nolint:gosec // tasks of other users run below it
		return noDirectory(dir, err)
	}
	err = runDev(ctx, cfg, dir)
	switch {
	case ours && err == nil:
		err = os.RemoveAll(dir)
		for _, above := range []string{filepath.Dir(dir), filepath.Dir(filepath.Dir(dir))} {
			_ = os.Remove(above) // if nothing else is in it
		}
	case missing != nil && err != nil:
		_ = os.Remove(dir) // empty after a mistake; with something in it, it stays
	}
	return err
}

func runDev(ctx context.Context, cfg DevConfig, dir string) error {
	cfg.Master.DataDir, cfg.Master.hollow = filepath.Join(dir, "master"), cfg.Hollow > 0
	cfg.Master.Link = socketPath(dir)
	if cfg.Master.Socket == "" && cfg.Master.PKI == "" {
		cfg.Master.Socket = filepath.Join(filepath.Dir(cfg.Master.Link), apiSocket)
	}
	m, err := openMaster(ctx, cfg.Master)
	if err != nil {
		return err
	}
	// The master ends last: it still gets what the agent reports while that stops the
	// tasks.
	masterCtx, stopMaster := context.WithCancel(context.WithoutCancel(ctx))
	defer stopMaster()
	agentCtx, stopAgent := context.WithCancel(ctx)
	defer stopAgent()
	masterDone := make(chan error, 1)
	go func() {
		masterDone <- m.run(masterCtx)
		stopAgent()
	}()
	err = cfg.machines(m, dir)(agentCtx)
	stopMaster()
	err = errors.Join(err, <-masterDone, m.close())
	return errors.Join(err, removeSocketDir(cfg.Master.Link))
}

// machines returns what runs the machines of the cell until its context ends.
func (cfg *DevConfig) machines(m *master, dir string) func(context.Context) error {
	if cfg.Hollow > 0 {
		return hollow.New(hollow.Config{
			Cell: m.cell, Masters: []string{cfg.Master.Link}, Count: cfg.Hollow, Seed: hollowSeed, Version: cfg.Master.Release, Log: cfg.Master.Log,
			Pattern: hollow.DefaultPattern,
		}).Run
	}
	return agentProcess{exe: cfg.Agent, stderr: cfg.Stderr, log: cfg.Master.Log, args: append([]string{
		"--cell", m.cell, "--master", "unix:" + cfg.Master.Link, "--state-dir", filepath.Join(dir, "agent"), "--log-level", "warn",
		"--hide", cfg.Master.DataDir, "--close-port", strconv.Itoa(m.api.Addr().(*net.TCPAddr).Port),
	}, cfg.AgentArgs...)}.run
}

// checkAgent errs for arguments that the agent does not take: it would say so when the master
// runs already.
func (cfg *DevConfig) checkAgent(ctx context.Context) error {
	if cfg.Hollow > 0 {
		return nil
	}
	return checkAgent(ctx, cfg.Agent, cfg.AgentArgs)
}

// checkApart errs when the state's directory is among the files that a work tree
// is followed for: each write there would be a save.
func checkApart(tree, dir string) error {
	abs, err := filepath.Abs(tree)
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(abs, dir)
	if err != nil || !filepath.IsLocal(rel) || rel != "." && strings.Contains("/"+rel, "/.") {
		return nil //nolint:nilerr // no way from one to the other
	}
	return inputError("name a directory outside, or a hidden one", "--data-dir %s is in the work tree %s, where every change is a save", dir, abs)
}

// checkSocketPath errs when no socket can be at path; the hint says what to do.
func checkSocketPath(path, hint string) error {
	if len(path) <= maxSocketPath {
		return nil
	}
	return inputError(hint, "the path of the socket %s has %d bytes, at most %d", path, len(path), maxSocketPath)
}

// socketPath returns where the agent link's socket is: below the state, or in
// the system's temporary directory if that path is too long.
func socketPath(dir string) string {
	path := filepath.Join(dir, "link", "agent.sock")
	if len(path) > maxSocketPath {
		path = filepath.Join(os.TempDir(), "muster-"+digest(dir), "agent.sock")
	}
	return path
}

func removeSocketDir(socket string) error {
	err := os.Remove(filepath.Dir(socket))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// devDir returns the directory of the state of a repository's cell: of a
// directory a function of its path, of a URL one of what it says. Tasks run as
// other users when muster runs as root, and those may not enter root's home.
func devDir(repo string) (string, error) {
	name := git.Redact(repo)
	if !git.IsRemote(repo) {
		var err error
		if name, err = filepath.Abs(strings.TrimPrefix(strings.TrimPrefix(repo, "file://"), "localhost")); err != nil {
			return "", err
		}
	}
	base := "/var/lib/muster"
	if os.Geteuid() != 0 {
		if base = os.Getenv("XDG_STATE_HOME"); base == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return "", fmt.Errorf("no place for the cell's state: %w; give --data-dir", err)
			}
			base = filepath.Join(home, ".local", "state")
		}
		base = filepath.Join(base, "muster")
	}
	return filepath.Join(base, "dev", baseName(name)+"-"+digest(name)), nil
}

// baseName returns the last element of a path or URL, without what a file's
// name cannot or should not have.
func baseName(name string) string {
	const most = 40
	base := name[strings.LastIndexAny(strings.TrimRight(name, "/"), "/:")+1:]
	base = strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return -1
	}, base)
	return strings.TrimLeft(base[:min(len(base), most)], ".")
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:6])
}
