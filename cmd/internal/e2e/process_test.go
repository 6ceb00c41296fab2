package e2e_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// daemon is a master or an agent.
type daemon struct {
	cmd  *exec.Cmd
	said chan string   // the first line of its stdout
	done chan struct{} // closed when it has ended and was reaped
}

// launch starts a binary with its stderr at the end of log.
func launch(log, name string, args ...string) (*daemon, error) {
	return launchBy(log, (*exec.Cmd).Start, name, args...)
}

// launchBy is launch with another way to start a command.
func launchBy(log string, start func(*exec.Cmd) error, name string, args ...string) (*daemon, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd := exec.Command(name, args...)
	cmd.Stderr = f
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := start(cmd); err != nil {
		return nil, err
	}
	d := &daemon{cmd: cmd, said: make(chan string, 1), done: make(chan struct{})}
	go func() {
		defer close(d.done)
		r := bufio.NewReader(out)
		line, _ := r.ReadString('\n') // "" if it ends before
		d.said <- strings.TrimSpace(line)
		_, _ = io.Copy(io.Discard, r)
		_ = cmd.Wait() // how it ended is not asked here
	}()
	return d, nil
}

func (d *daemon) pid() int { return d.cmd.Process.Pid }

// end sends sig and waits until the process was reaped; after limit it is
// killed, and that is an error.
func (d *daemon) end(sig syscall.Signal, limit time.Duration) error {
	if err := d.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-d.done:
		return nil
	case <-time.After(limit):
	}
	err := fmt.Errorf("%s (pid %d) has not ended %s after %v", filepath.Base(d.cmd.Path), d.pid(), limit, sig)
	_ = d.cmd.Process.Kill()
	<-d.done
	return err
}

// process is an entry of the process table.
type process struct {
	pid, parent, session int
	start                string // in clock ticks since boot, as proc(5) has it
}

// same reports whether p still runs.
func (p process) same() bool {
	now, err := look(p.pid)
	return err == nil && now.start == p.start
}

var errEnded = errors.New("it has ended")

// look reads the entry of a live process.
func look(pid int) (process, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, err
	}
	// The second field is the command in parentheses, and may hold anything.
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < 20 {
		return process{}, fmt.Errorf("/proc/%d/stat: %q", pid, b)
	}
	if f[0] == "Z" || f[0] == "X" {
		return process{}, errEnded
	}
	p := process{pid: pid, start: f[19]}
	p.parent, _ = strconv.Atoi(f[1])
	p.session, _ = strconv.Atoi(f[3])
	return p, nil
}

// pids lists the ids of the processes.
func pids() ([]int, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	var list []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			list = append(list, pid)
		}
	}
	return list, err
}

// all lists the live processes.
func all() ([]process, error) {
	pids, err := pids()
	if err != nil {
		return nil, err
	}
	var list []process
	for _, pid := range pids {
		if p, err := look(pid); err == nil {
			list = append(list, p)
		}
	}
	return list, nil
}

// environ returns a process's environment, "" if it cannot be read.
func (p process) environ() string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
	return string(b)
}

// words returns a process's command line, with spaces.
func (p process) words() string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid))
	return strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " "))
}

// variable returns the value of a variable in an environment.
func variable(environ, name string) string {
	for v := range strings.SplitSeq(environ, "\x00") {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return ""
}

// ofCell lists the live processes that belong to the cell in dir: those that
// have it in their command line or environment.
func ofCell(dir string) ([]process, error) {
	list, err := all()
	if err != nil {
		return nil, err
	}
	var out []process
	for _, p := range list {
		if p.pid != os.Getpid() && strings.Contains(p.words()+"\x00"+p.environ(), dir+"/") {
			out = append(out, p)
		}
	}
	return out, nil
}

// orphans lists the compile children of the binaries in bin whose master is gone.
func orphans(bin string) ([]process, error) {
	list, err := all()
	if err != nil {
		return nil, err
	}
	var out []process
	for _, p := range list {
		if p.words() != filepath.Join(bin, "muster")+" compile-child" {
			continue
		}
		if parent, err := look(p.parent); err != nil || !strings.HasPrefix(parent.words(), filepath.Join(bin, "muster")+" master ") {
			out = append(out, p)
		}
	}
	return out, nil
}

// resident returns the resident memory of a process, in KiB.
func resident(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("/proc/%d/status has no VmRSS", pid)
	return 0
}

// cgroupsOf lists the cgroups whose name is one of names, in any hierarchy.
func cgroupsOf(names map[string]bool) ([]string, error) {
	var out []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
			return nil // removed meanwhile, or not ours to see
		case err != nil:
			return err
		case d.IsDir() && names[d.Name()]:
			out = append(out, path)
		}
		return nil
	})
	return out, err
}

// mounted errs when a process has a mount with something of the cell in dir.
func mounted(pid int, dir string) error {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, dir+"/") {
			return fmt.Errorf("process %d has a mount: %s", pid, line)
		}
	}
	return nil
}
