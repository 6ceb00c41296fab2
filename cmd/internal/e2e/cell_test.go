package e2e_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent/strike"

	"github.com/musterhq/muster/cmd/internal/binaries"
	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema/scaffold"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == serveWord {
		os.Exit(serveTask())
	}
	if len(os.Args) == 2 && os.Args[1] == answerWord {
		os.Exit(answerTask())
	}
	if len(os.Args) == 2 && os.Args[1] == clockWord {
		fmt.Println(time.Now().Unix())
		return
	}
	if len(os.Args) > 2 && (os.Args[1] == memberWord || os.Args[1] == joinWord) {
		os.Exit(serveMember(os.Args[1], os.Args[2], os.Args[3:]))
	}
	os.Exit(binaries.Main(m))
}

const (
	cellName = "e2e"
	module   = "example.com/e2e"
	machine  = "this-machine"
	teamFile = "teams/crew/crew.cue"
	// bound is how long the cell may take for anything: a busy CI machine
	// takes tens of times longer than an idle one.
	bound = 60 * time.Second
	// neverOverloaded has an agent not ask the master to move tasks away because they wait
	// for processors: several agents share those of the test's machine, which has more to do.
	neverOverloaded = "--overload-after=0"
)

// cell is a master and an agent as processes, on a repository of their own.
type cell struct {
	t    *testing.T
	name string // of the cell
	dir  string // everything of it, and in the command line or environment of all its processes
	bin  string
	repo string
	// follows are the master's flags for its repository, and state the
	// agent's state directory.
	follows []string
	state   string
	// wrap is a command that the master is started by, and socket where its API is if
	// not at the address that it says; nil and "" for none.
	wrap   []string
	socket string

	master, agent *daemon
	api           *client.Client
	url           string // of api
}

// newCell starts a cell without jobs.
func newCell(t *testing.T) *cell {
	t.Helper()
	c := prepare(t)
	c.initRepo()
	c.begin()
	return c
}

// prepare makes the directory of a cell of which nothing runs yet, and takes
// everything away at the end of the test, however that ends.
func prepare(t *testing.T) *cell {
	t.Helper()
	bin := binaries.Dir(t)
	// Tasks run as other users, who must be able to pass: t.TempDir is closed
	// to them. Its path is also too long for a socket at times.
	dir, err := os.MkdirTemp(seenByTasks(t), "muster-e2e-")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &cell{t: t, name: cellName, dir: dir, bin: bin, repo: filepath.Join(dir, "config"), state: filepath.Join(dir, "agent")}
	c.follows = []string{"--repo", c.repo}
	t.Cleanup(c.close)
	c.must(os.Chmod(dir, 0o711))
	c.must(strike.Program(t.Context(), c.path("task.sh"), []byte(script)))
	c.must(os.Mkdir(c.path("journals"), 0o755))
	c.must(os.Chmod(c.path("journals"), 0o777)) // tasks of any user write there, whatever the umask
	return c
}

// seenByTasks returns a directory of which tasks see what the machine does: each
// has a /tmp of its own.
func seenByTasks(t *testing.T) string {
	t.Helper()
	if os.Geteuid() == 0 {
		return "/var/lib"
	}
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	return home
}

// begin starts the cell.
func (c *cell) begin() {
	c.t.Helper()
	c.startMaster()
	c.startAgent()
	c.joined()
}

// joined waits for the agent.
func (c *cell) joined() {
	c.t.Helper()
	c.until("the agent joins", func(s *status.Status) string {
		for _, m := range s.Machines {
			if m.Health == string(model.HealthUp) {
				return ""
			}
		}
		return "no machine is up"
	})
}

func (c *cell) path(elem ...string) string {
	return filepath.Join(append([]string{c.dir}, elem...)...)
}

func (c *cell) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// initRepo writes what `muster init` writes, without its example.
func (c *cell) initRepo() {
	c.t.Helper()
	files, err := scaffold.Files(module, c.name)
	c.must(err)
	maps.DeleteFunc(files, func(path string, _ []byte) bool {
		return strings.HasPrefix(path, "teams/") || path == "tenants.cue"
	})
	c.must(git.Init(c.repo, "main"))
	c.commit("an empty cell", files)
}

// commit commits files, of which a nil value removes one.
func (c *cell) commit(message string, files map[string][]byte) string {
	c.t.Helper()
	hash, err := git.Commit(c.repo, git.Change{
		Message: message, Files: files, Author: "e2e", Email: "e2e@example.com", When: time.Now(),
	})
	c.must(err)
	return hash
}

// command is one of muster's.
func (c *cell) command(args ...string) *exec.Cmd {
	return exec.CommandContext(c.t.Context(), filepath.Join(c.bin, "muster"), args...)
}

func (c *cell) startMaster() {
	c.t.Helper()
	line := append(slices.Clone(c.wrap), filepath.Join(c.bin, "muster"), "master")
	line = append(append(line,
		"--cell", c.name, "--data-dir", c.path("master"), "--link", c.path("link", "agent.sock"),
	), c.follows...)
	m, err := launch(c.path("master.log"), line[0], line[1:]...)
	c.must(err)
	c.master = m
}

// restartMaster kills the master with SIGKILL and starts another.
func (c *cell) restartMaster() {
	c.t.Helper()
	c.must(c.master.end(syscall.SIGKILL, bound))
	if c.api != nil {
		c.api.Close()
		c.api = nil
	}
	c.startMaster()
}

// connect waits for the address that the newest master says, once.
func (c *cell) connect() error {
	select {
	case line := <-c.master.said:
		_, url, ok := strings.Cut(line, " at ")
		if !ok {
			return fmt.Errorf("the master said %q instead of its address", line)
		}
		if c.socket != "" {
			url = "unix:" + c.socket
		}
		api, err := client.New(url)
		if c.api != nil {
			c.api.Close()
		}
		c.api, c.url = api, url
		return err
	case <-time.After(bound):
		return fmt.Errorf("the master has not said its address within %s", bound)
	}
}

func (c *cell) startAgent() {
	c.t.Helper()
	a, err := launch(c.path("agent.log"), filepath.Join(c.bin, "muster-agent"),
		"--cell", cellName, "--master", "unix:"+c.path("link", "agent.sock"), "--name", machine, "--state-dir", c.state, "--writable", c.path("journals"))
	c.must(err)
	c.agent = a
}

// until waits until missing returns "" for the status of the cell.
func (c *cell) until(what string, missing func(*status.Status) string) *status.Status {
	c.t.Helper()
	if c.api == nil || len(c.master.said) > 0 {
		c.must(c.connect())
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), bound)
	defer cancel()
	var version uint64
	why := "no answer"
	for {
		s, v, err := c.api.Status(ctx, client.StatusQuery{After: version, Wait: bound})
		if err != nil {
			c.t.Fatalf("%s: %v; last: %s", what, err, why)
		}
		version = v
		if why = missing(s); why == "" {
			return s
		}
	}
}

// converge waits until the cell is as commit says.
func (c *cell) converge(commit string) *status.Status {
	c.t.Helper()
	return c.until("the cell converges at "+commit, func(s *status.Status) string {
		if s.Commit == commit && s.Applied == commit && s.Converged {
			return ""
		}
		return fmt.Sprintf("head %.10s, applied %.10s: %s", s.Commit, s.Applied, strings.Join(s.Waiting, "; "))
	})
}

// close ends what runs and removes everything, and fails the test for what did
// not go by itself. The logs of a test that failed are printed.
func (c *cell) close() {
	if c.t.Failed() {
		for _, name := range []string{"master.log", "agent.log"} {
			b, _ := os.ReadFile(c.path(name)) // not there if it never ran
			c.t.Logf("the end of %s:\n%s", name, b[max(0, len(b)-8000):])
		}
	}
	if c.api != nil {
		c.api.Close()
	}
	if c.master != nil {
		c.check(c.master.end(syscall.SIGTERM, bound))
	}
	if c.agent != nil {
		c.check(c.agent.end(syscall.SIGINT, bound)) // stops the tasks as well
	}
	// A process that was killed as a child may be gone a moment later.
	c.check(eventually(func() error { return c.leftovers() }))
	c.sweep()
	if err := os.RemoveAll(c.dir); err != nil {
		c.t.Error(err)
	}
}

func (c *cell) check(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Error(err)
	}
}

// leftovers errs when a process, cgroup or mount of the cell is there.
func (c *cell) leftovers() error {
	var errs []error
	left, err := ofCell(c.dir)
	errs = append(errs, err)
	children, err := orphans(c.bin)
	errs = append(errs, err)
	for _, p := range append(left, children...) {
		errs = append(errs, fmt.Errorf("left behind: process %d: %s", p.pid, p.words()))
	}
	groups, err := cgroupsOf(c.cgroups())
	errs = append(errs, err, mounted(os.Getpid(), c.dir))
	for _, g := range groups {
		errs = append(errs, fmt.Errorf("left behind: cgroup %s", g))
	}
	return errors.Join(errs...)
}

// cgroups are the names of the cgroups that agents make, a function of their
// state directories; see package runtime.
func (c *cell) cgroups() map[string]bool {
	states, err := filepath.Glob(c.path("state-*")) // of several agents
	c.check(err)
	names := map[string]bool{}
	for _, dir := range append(states, c.state) {
		sum := sha256.Sum256([]byte(dir))
		names["muster-"+hex.EncodeToString(sum[:4])] = true
	}
	return names
}

// sweep takes away by force what close has found.
func (c *cell) sweep() {
	c.check(eventually(func() error {
		left, err := ofCell(c.dir)
		for _, p := range left {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
		if len(left) > 0 {
			err = fmt.Errorf("%d processes cannot be killed", len(left))
		}
		return err
	}))
	groups, _ := cgroupsOf(c.cgroups())
	for _, g := range groups {
		var dirs []string
		_ = filepath.WalkDir(g, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for i := len(dirs) - 1; i >= 0; i-- {
			_ = os.Remove(dirs[i])
		}
	}
}

// eventually returns nil when f has, or its last error after a while. It looks
// again and again at what sends no message: the process table.
func eventually(f func() error) error { return within(bound/4, f) }

// within is eventually with another patience.
func within(patience time.Duration, f func() error) error {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-limit.C:
			return err
		case <-tick.C:
		}
	}
}
