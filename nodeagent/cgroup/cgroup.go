package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Dirs are the directories of one cgroup, one in each hierarchy. The files in a directory
// show what it supports, so v1, v2 and both together are handled alike.
type Dirs []string

// IsUnified reports whether dir is of the v2 hierarchy.
func IsUnified(dir string) bool {
	var s unix.Statfs_t
	return unix.Statfs(dir, &s) == nil && s.Type == unix.CGROUP2_SUPER_MAGIC
}

// writeControl writes text to an existing file of a cgroup.
func writeControl(dir, name, text string) error {
	path := filepath.Join(dir, name)
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(text)); err != nil {
		return &fs.PathError{Op: "write", Path: path, Err: err}
	}
	return nil
}

// Members returns the pids in the cgroup dir itself, in the order of the kernel; none if
// there is no such cgroup.
func Members(dir string) []int {
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil
	}
	var pids []int
	for line := range strings.Lines(string(b)) {
		if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Kill sends SIGKILL to all that is in the cgroup and below it, and reports whether
// there was anything.
func (c Dirs) Kill() bool {
	found := false
	for _, dir := range c {
		for _, d := range tree(dir) {
			if len(Members(d)) == 0 {
				continue
			}
			found = true
			if writeControl(d, "cgroup.kill", "1") != nil { // not v2, or older than Linux 5.14
				killFrozen(d)
			}
		}
	}
	return found
}

// UserOf returns the user of a process in the cgroup dir itself; 0 if there is none,
// or it is root's.
func UserOf(dir string) int {
	for _, pid := range Members(dir) {
		var s unix.Stat_t
		if unix.Stat("/proc/"+strconv.Itoa(pid), &s) == nil && s.Uid != 0 {
			return int(s.Uid)
		}
	}
	return 0
}

// killFrozen kills the members of dir, none of which can fork meanwhile where
// dir can freeze. A process that was killed while frozen ends when it thaws.
func killFrozen(dir string) {
	switch {
	case writeControl(dir, "freezer.state", "FROZEN") == nil:
		defer func() { _ = writeControl(dir, "freezer.state", "THAWED") }()
	case writeControl(dir, "cgroup.freeze", "1") == nil:
		defer func() { _ = writeControl(dir, "cgroup.freeze", "0") }()
	}
	held := map[int]int{}
	for _, pid := range Members(dir) {
		if fd, err := unix.PidfdOpen(pid, 0); err == nil {
			held[pid] = fd
		}
	}
	for _, pid := range Members(dir) { // still there: the pidfd is a member's
		if fd, ok := held[pid]; ok {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
	}
	for _, fd := range held {
		_ = unix.Close(fd)
	}
}

// OOMKills returns how many of the members the kernel has killed for lack of
// memory.
func (c Dirs) OOMKills() int {
	kills := 0
	for _, dir := range c {
		for _, name := range []string{"memory.oom_control", "memory.events"} {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				continue
			}
			for line := range strings.Lines(string(b)) {
				if f := strings.Fields(line); len(f) == 2 && f[0] == "oom_kill" {
					n, _ := strconv.Atoi(f[1])
					kills += n
				}
			}
		}
	}
	return kills
}

// removeTries and removeWait bound the removal: the kernel lets go of a cgroup
// a moment after its last process has ended.
const (
	removeTries = 200
	removeWait  = 5 * time.Millisecond
)

// Remove removes the cgroup and what a task has made below, and waits a second for
// what is still ending in it. It is no error if it is gone.
func (c Dirs) Remove() error {
	var errs []error
	for _, dir := range c {
		for _, d := range tree(dir) {
			errs = append(errs, removeBusy(d))
		}
	}
	return errors.Join(errs...)
}

func removeBusy(dir string) error {
	var err error
	for range removeTries {
		err = unix.Rmdir(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(removeWait)
	}
	return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
}

// tree returns the cgroups from dir down, deepest first.
func tree(dir string) []string {
	var s unix.Stat_t
	if unix.Stat(dir, &s) == nil && s.Nlink == 2 {
		return []string{dir} // none below, as nearly always
	}
	var dirs []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	slices.Reverse(dirs)
	return dirs
}
