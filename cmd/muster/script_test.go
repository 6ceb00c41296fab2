package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/musterhq/muster/cmd/internal/binaries"
)

func TestMain(m *testing.M) { os.Exit(binaries.Main(m)) }

// patience is how long a script waits for what takes well under a second on an
// idle machine.
const patience = 60 * time.Second

// TestScript runs the scripts of testdata/script on the real binaries. Each is
// a cell of its own. What the commands in them do that testscript has not, is
// documented at the functions in scriptcmd_test.go:
//
//	start [-quiet] NAME PROGRAM ARG…   a daemon; its first line sets MUSTER_MASTER
//	signal SIG NAME, await CODE NAME   send a signal to it, wait for its end
//	fails CODE PROGRAM ARG…            one error with a hint, and nothing on stdout
//	exits CODE PROGRAM ARG…            any output
//	waitfor REGEXP PROGRAM ARG…        again and again until its stdout matches
//	json PATH REGEXP, json -set VAR PATH   look into the last stdout
//	tasks FILE, running FILE, gone FILE    which processes the cell's tasks are
//	occupy PORT, release PORT          listen on it as someone else
//	nothingleft [-state]               no process, socket, mount, cgroup, state
func TestScript(t *testing.T) {
	t.Parallel()
	bin := binaries.Dir(t)
	// Short, since a socket's path has little room, and open to the users
	// that tasks run as.
	root, err := os.MkdirTemp("/tmp", "ms-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(root, 0o711); err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		WorkdirRoot:         root,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               func(env *testscript.Env) error { return setUp(env, bin) },
		// root: tasks have users of their own, where nothing else is missing.
		Condition: func(cond string) (bool, error) {
			if cond != "root" {
				return false, fmt.Errorf("condition %q is not known", cond)
			}
			return os.Geteuid() == 0, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"start":       cmdStart,
			"signal":      cmdSignal,
			"await":       cmdAwait,
			"fails":       cmdFails,
			"exits":       cmdExits,
			"waitfor":     cmdWaitFor,
			"json":        cmdJSON,
			"tasks":       cmdTasks,
			"running":     cmdRunning,
			"gone":        cmdGone,
			"occupy":      cmdOccupy,
			"release":     cmdRelease,
			"nothingleft": cmdNothingLeft,
			"planjob":     cmdPlanJob,
			"comments":    cmdComments,
		},
	})
}

// setUp gives a script its environment:
//
//	REPO    a name that no other directory has: of it the name of the
//	        default state directory is made
//	PORTS   a range of ports for its tasks, and FIRST, the first of them
func setUp(env *testscript.Env, bin string) error {
	first, err := freePorts()
	if err != nil {
		return err
	}
	w := &world{work: env.WorkDir, repo: fmt.Sprintf("repo%08x", rand.Uint32()), first: first, daemons: map[string]*daemon{}, taken: map[string]net.Listener{}} //nolint:gosec // a name
	env.Values[worldKey{}] = w
	env.Defer(func() { w.close(env.T()) })
	for name, value := range map[string]string{
		"PATH":                bin + string(filepath.ListSeparator) + env.Getenv("PATH"),
		"HOME":                env.WorkDir,
		"XDG_STATE_HOME":      filepath.Join(env.WorkDir, "xdg"),
		"LANG":                "C.UTF-8",
		"MUSTER_MASTER":       "",
		"COLUMNS":             "400", // lines are matched whole
		"GIT_CONFIG_NOSYSTEM": "1",
		"GIT_AUTHOR_NAME":     "Ada", "GIT_AUTHOR_EMAIL": "ada@example.com",
		"GIT_COMMITTER_NAME": "Ada", "GIT_COMMITTER_EMAIL": "ada@example.com",
		// The hook of init would refuse the mistakes that scripts commit.
		"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.hooksPath", "GIT_CONFIG_VALUE_0": "/dev/null",
		"REPO":  w.repo,
		"FIRST": strconv.Itoa(first),
		"PORTS": fmt.Sprintf("%d-%d", first, first+portsEach-1),
	} {
		env.Setenv(name, value)
	}
	for _, v := range env.Vars {
		name, _, _ := strings.Cut(v, "=")
		w.vars = append(w.vars, name)
	}
	return os.WriteFile(filepath.Join(env.WorkDir, ".gitconfig"), []byte("[init]\n\tdefaultBranch = main\n"), 0o600)
}

// portsEach is how many ports a script has. They lie below those that the
// kernel gives out and those that an agent has by default.
const portsEach = 10

var portBlock atomic.Int32

// freePorts returns the first of portsEach ports that nobody listens on. It
// begins anywhere, since another run of these tests may be in progress.
func freePorts() (int, error) {
	const low, blocks = 11000, 800
	portBlock.CompareAndSwap(0, rand.Int32N(blocks)) //nolint:gosec // not a secret
next:
	for range blocks {
		first := low + portsEach*int(portBlock.Add(1)%blocks)
		for port := first; port < first+portsEach; port++ {
			l, err := net.Listen("tcp", ":"+strconv.Itoa(port)) //nolint:gosec // closed at once
			if err != nil {
				continue next
			}
			_ = l.Close()
		}
		return first, nil
	}
	return 0, fmt.Errorf("no %d ports in a row are free from %d on", portsEach, low)
}

// world is what a script has started.
type world struct {
	work    string
	repo    string
	first   int      // port
	vars    []string // names of the variables that its processes have, see command
	daemons map[string]*daemon
	taken   map[string]net.Listener
	forges  forges
}

type worldKey struct{}

func worldOf(ts *testscript.TestScript) *world {
	w, ok := ts.Value(worldKey{}).(*world)
	if !ok {
		ts.Fatalf("no world was set up")
	}
	return w
}

// close ends all that a script left running: what it started itself, and then
// whatever of that has the script's directory in its command line, environment
// or working directory.
func (w *world) close(t testscript.T) {
	w.forges.close()
	for _, l := range w.taken {
		_ = l.Close()
	}
	for _, d := range w.daemons {
		d.kill()
	}
	for _, p := range w.processes() {
		_ = p.kill()
	}
	states, _ := w.states()
	for _, dir := range states {
		if err := os.RemoveAll(dir); err != nil {
			t.Log(err)
		}
	}
}

// states lists the default state directories of the script's repository.
func (w *world) states() ([]string, error) {
	var out []string
	for _, base := range []string{"/var/lib/muster", filepath.Join(w.work, "xdg", "muster")} {
		found, err := filepath.Glob(filepath.Join(base, "dev", w.repo+"*"))
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// marks are what the script's processes, mounts and sockets have in their names.
func (w *world) marks() []string { return []string{w.work + "/", "/" + w.repo} }

func (w *world) marked(s string) bool {
	for _, m := range w.marks() {
		if strings.Contains(s, m) {
			return true
		}
	}
	return false
}
