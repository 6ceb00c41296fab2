package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/bundle"
)

// guest is a command beside a task that has a kernel: the process that the session holds is
// the runtime's exec, and what is in the kernel is known to the runtime alone.
type guest struct {
	*beside
	state *os.Root // bundle.State
	name  string   // of its files there
	pid   int      // in the kernel
}

// newGuest plans a command of a session, and what the session runs for it.
func (s *session) newGuest(o *order) (*guest, error) {
	b := s.beside
	state, err := os.OpenRoot(filepath.Join("/proc", strconv.Itoa(b.state.Task.PID), "root", bundle.Path(b.dir, bundle.State)))
	if err != nil {
		return nil, fmt.Errorf("the runtime's directory: %w", err)
	}
	c := b.spec.Container
	info, err := state.Stat(".")
	if st, ok := statOf(info); err == nil && (!ok || int(st.Uid) != c.Users.Of(0)) {
		err = errors.New("the runtime's directory is another's")
	}
	if b.over() { // else it was the task's
		err = errEnded
	}
	if err != nil {
		return nil, errors.Join(err, state.Close())
	}
	g := &guest{beside: b, state: state, name: "exec-" + strconv.Itoa(os.Getpid())}
	process := map[string]any{
		"args": o.command, "env": o.env, "cwd": b.spec.Dir, "terminal": o.tty, "noNewPrivileges": true,
		"user": map[string]int{"uid": c.Users.Inside, "gid": c.Groups.Inside},
	}
	if err := g.describe(process); err != nil {
		return nil, errors.Join(err, g.close())
	}
	at := bundle.Path(b.dir, bundle.State) + "/" + g.name
	o.command = c.runtimeCommand(b.dir, g.name+".log", "exec", "--process", at+".json", "--internal-pid-file", at+".pid", c.ID)
	o.env = runtimeEnv
	return g, nil
}

// statOf returns what the kernel says of a file.
func statOf(info os.FileInfo) (*syscall.Stat_t, bool) {
	if info == nil {
		return nil, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return st, ok
}

// describe writes the command down for the runtime.
func (g *guest) describe(process map[string]any) error {
	var config struct {
		Process struct {
			Capabilities json.RawMessage `json:"capabilities"`
		} `json:"process"`
	}
	c := g.spec.Container
	if err := json.Unmarshal(c.Config, &config); err != nil {
		return err
	}
	if len(config.Process.Capabilities) > 0 {
		process["capabilities"] = config.Process.Capabilities
	}
	b, err := json.Marshal(process)
	if err != nil {
		return err
	}
	f, err := g.state.OpenFile(g.name+".json", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Chown(c.Users.Of(0), c.Groups.Of(0)), f.Close())
}

// close removes what was written for it.
func (g *guest) close() error {
	for _, ext := range []string{".json", ".pid", ".log"} {
		_ = g.state.Remove(g.name + ext) // it may never have been there
	}
	return g.state.Close()
}

// await returns when the command runs, or has ended; exec is the runtime's exec, a child.
func (g *guest) await(exec int) error {
	for ; ; time.Sleep(kernelEvery) {
		over := ended(exec)
		if b, err := g.read(".pid"); err == nil && len(b) > 0 {
			g.pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
			return err
		}
		if !over {
			continue
		}
		said, _ := g.read(".log") // without it there is nothing to say
		if g.over() {
			return errEnded
		}
		if why := complaints(said); why != "" {
			return kernelError(why)
		}
		return errors.New("the runtime has ended before it ran the command")
	}
}

// read reads one of its files.
func (g *guest) read(ext string) ([]byte, error) {
	f, err := g.state.Open(g.name + ext)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxPacket))
}

// signal sends a signal to the command.
func (g *guest) signal(sig unix.Signal, group string) {
	if pid, err := g.signalKernel(g.pid, sig, group); err == nil {
		reapOne(pid)
	}
}

// kill kills the command, and what of its descendants is one still: of others the runtime does
// not say whose they were, and they end with the task.
func (g *guest) kill(group string) {
	for _, pid := range g.family(group) {
		if killer, err := g.signalKernel(pid, unix.SIGKILL, group); err == nil {
			reapOne(killer)
		}
	}
}

// family returns the command and its descendants.
func (g *guest) family(group string) []int {
	list := []int{g.pid}
	r, w, err := os.Pipe()
	if err != nil {
		return list
	}
	defer r.Close()
	pid, err := g.callRuntime(w, group, "ps", g.spec.Container.ID)
	_ = w.Close()
	if err != nil {
		return list
	}
	text, _ := io.ReadAll(r) // what there is of it
	reapOne(pid)
	parents := map[int]int{}
	for line := range strings.Lines(string(text)) { // UID PID PPID …
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		pid, errA := strconv.Atoi(f[1])
		parent, errB := strconv.Atoi(f[2])
		if errA == nil && errB == nil {
			parents[pid] = parent
		}
	}
	for i := 0; i < len(list); i++ {
		for pid, parent := range parents {
			if parent == list[i] && !slices.Contains(list, pid) {
				list = append(list, pid)
			}
		}
	}
	return list
}
