package main

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
	"time"
)

// daemon is a process that a script started with `start`.
type daemon struct {
	cmd   *exec.Cmd
	log   string        // file of its stderr
	first chan string   // its first line, "" if it ended without one
	done  chan struct{} // closed when it has ended
}

// startDaemon starts cmd in a process group of its own.
func startDaemon(cmd *exec.Cmd, log string) (*daemon, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd.Stderr = f
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	d := &daemon{cmd: cmd, log: log, first: make(chan string, 1), done: make(chan struct{})}
	go func() {
		r := bufio.NewReader(out)
		line, _ := r.ReadString('\n') // an early end shows in done
		d.first <- strings.TrimSpace(line)
		_, _ = io.Copy(io.Discard, r)
		_ = cmd.Wait() // its exit code is in ProcessState
		close(d.done)
	}()
	return d, nil
}

// wait waits for the end and returns the exit code, -1 after a signal.
func (d *daemon) wait() (int, error) {
	select {
	case <-d.done:
		return d.cmd.ProcessState.ExitCode(), nil
	case <-time.After(patience):
		return 0, fmt.Errorf("%s (pid %d) did not end within %s", filepath.Base(d.cmd.Path), d.cmd.Process.Pid, patience)
	}
}

// kill ends the daemon: in order if it will, else with SIGKILL.
func (d *daemon) kill() {
	_ = d.cmd.Process.Signal(os.Interrupt)
	select {
	case <-d.done:
	case <-time.After(patience):
		_ = d.cmd.Process.Kill()
		<-d.done
	}
}

// process is one that no other can be taken for: its start is in clock ticks
// since boot (proc(5), field 22 of /proc/PID/stat).
type process struct {
	pid   int
	start string
	what  string // its command line, for people
}

// identify returns the live process pid.
func identify(pid int) (process, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, err
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return process{}, fmt.Errorf("process %d has ended", pid)
	}
	return process{pid: pid, start: f[19]}, nil
}

// kill kills the process unless it has ended and its pid is another's.
func (p process) kill() error {
	if now, err := identify(p.pid); err != nil || now.start != p.start {
		return nil //nolint:nilerr // it has ended: that is what is wanted
	}
	return syscall.Kill(p.pid, syscall.SIGKILL)
}

// processes lists the live processes that are the script's.
func (w *world) processes() []process {
	entries, _ := os.ReadDir("/proc")
	var out []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		p, err := identify(pid)
		if err != nil {
			continue
		}
		// One that ends meanwhile, or is not ours to look into, reads as "".
		cmdline, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		environ, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		cwd, _ := os.Readlink(filepath.Join("/proc", e.Name(), "cwd"))
		p.what = strings.ReplaceAll(string(cmdline), "\x00", " ")
		if w.marked(string(cmdline) + "\x00" + string(environ) + "\x00" + cwd + "/") {
			out = append(out, p)
		}
	}
	return out
}

// left lists what is there of the script's cell: processes, unix sockets,
// mounts, cgroups of its tasks and, with state, its default state directory.
func (w *world) left(state bool) ([]string, error) {
	var out []string
	for _, p := range w.processes() {
		out = append(out, fmt.Sprintf("process %d: %s", p.pid, p.what))
	}
	for _, file := range []string{"/proc/net/unix", "/proc/self/mountinfo"} {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(b)) {
			if w.marked(line) {
				out = append(out, file+": "+strings.TrimSpace(line))
			}
		}
	}
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && w.marked(path) {
			out = append(out, "cgroup "+path)
		}
		return nil // one that is removed meanwhile is not left
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if state {
		dirs, err := w.states()
		if err != nil {
			return nil, err
		}
		out = append(out, dirs...)
	}
	return out, nil
}
