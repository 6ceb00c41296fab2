package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// daemon is a process that the demo started.
type daemon struct {
	cmd  *exec.Cmd
	log  string        // where its stderr goes
	done chan struct{} // closed when it has ended
}

// start runs a binary of the demo with its stderr in a file. First, when not
// nil, is sent the first line of its stdout. When the demo itself is killed the
// kernel sends the daemon orphaned; that is bound to the thread that starts it
// (prctl(2), PR_SET_PDEATHSIG), so the thread is kept.
func start(logFile string, first chan<- string, orphaned syscall.Signal, argv ...string) (*daemon, error) {
	f, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // ended by signal, not by a context
	cmd.Stderr = f
	// Its own process group: an interrupt at the terminal reaches the demo
	// alone, which then stops the cell in order.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: orphaned}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	d := &daemon{cmd: cmd, log: logFile, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		r := bufio.NewReader(out)
		line, _ := r.ReadString('\n') // "" if it ends early
		if first != nil {
			first <- strings.TrimSpace(line)
		}
		_, _ = io.Copy(io.Discard, r)
		_ = cmd.Wait() // that it has ended is all that matters
		close(d.done)
	}()
	return d, <-started
}

// stop asks the daemon to end with sig, and waits for it.
func (d *daemon) stop(ctx context.Context, sig syscall.Signal) error {
	if err := d.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-d.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s (pid %d) did not end after %v; its log: %s", filepath.Base(d.cmd.Path), d.cmd.Process.Pid, sig, d.log)
	}
}

// identity is a process that no other can be taken for: its pid and its start
// time, in clock ticks since boot (proc(5), /proc/PID/stat field 22).
type identity struct {
	pid   int
	start string
}

// identify reads the identity of a live process.
func identify(pid int) (identity, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return identity{}, fmt.Errorf("process %d: %w", pid, err)
	}
	// The second field is the command in parentheses, and may hold anything.
	s := string(b)
	f := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(f) < 20 {
		return identity{}, fmt.Errorf("process %d: /proc/%d/stat has %d fields after the command", pid, pid, len(f))
	}
	if f[0] == "Z" || f[0] == "X" {
		return identity{}, fmt.Errorf("process %d has ended", pid)
	}
	return identity{pid, f[19]}, nil
}

// processesOf lists the live processes that have dir in their command line,
// working directory or environment, other than the demo itself.
func processesOf(dir string) ([]string, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if _, err := identify(pid); err != nil {
			continue // ended meanwhile, or a zombie that its parent has yet to see
		}
		cmdline, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		environ, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		cwd, _ := os.Readlink(filepath.Join("/proc", e.Name(), "cwd"))
		if strings.Contains(string(cmdline)+"\x00"+string(environ)+"\x00"+cwd, dir+"/") {
			out = append(out, fmt.Sprintf("%d (%s)", pid, strings.ReplaceAll(string(cmdline), "\x00", " ")))
		}
	}
	return out, nil
}

// cgroupsOf returns the cgroups that a process is in and the demo is not, as
// paths within their hierarchies (proc(5), /proc/PID/cgroup), each with the
// groups above it.
func cgroupsOf(pid int) []string {
	ours := map[string]bool{}
	for _, path := range cgroupPaths("self") {
		for ; path != "/" && path != "."; path = filepath.Dir(path) {
			ours[path] = true
		}
	}
	var out []string
	for _, path := range cgroupPaths(strconv.Itoa(pid)) {
		for ; path != "/" && path != "." && !ours[path]; path = filepath.Dir(path) {
			out = append(out, path)
		}
	}
	return out
}

func cgroupPaths(pid string) []string {
	b, err := os.ReadFile(filepath.Join("/proc", pid, "cgroup"))
	if err != nil {
		return nil // it has ended, or there are no cgroups
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 {
			out = append(out, f[2])
		}
	}
	return out
}

// existingCgroups lists those of the given paths that are in any hierarchy.
func existingCgroups(paths map[string]bool) ([]string, error) {
	roots, err := filepath.Glob("/sys/fs/cgroup/*")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, root := range append(roots, "/sys/fs/cgroup") {
		for path := range paths {
			if _, err := os.Stat(filepath.Join(root, path)); err == nil {
				out = append(out, filepath.Join(root, path))
			}
		}
	}
	return out, nil
}

// mountsOf lists the mounts that have dir in them.
func mountsOf(dir string) ([]string, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, dir) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out, nil
}

// within runs f again and again until it returns no error or the time is up;
// then the last error is returned.
func within(ctx context.Context, limit time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}
