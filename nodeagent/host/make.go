package host

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// The library makes a cgroup with v1, too, but each start of a task makes eight. It looks at each
// directory on the way, has Go's poller asked about each file, and writes what the kernel begins
// with: twice the processor time.

// setting is what is written to a file of a cgroup.
type setting struct{ file, value string }

// settings are those of the limits l for a controller of v1, in the order in which the kernel takes
// them. What a new group has anyway is not among them if it is new.
func settings(controller cgroup1.Name, l *specs.LinuxResources, isNew bool) []setting {
	var list []setting
	number := func(file string, n *int64) {
		if n != nil {
			list = append(list, setting{file, strconv.FormatInt(*n, 10)})
		}
	}
	switch controller {
	case cgroup1.Cpu:
		if c := l.CPU; c != nil && c.Shares != nil {
			list = append(list, setting{"cpu.shares", strconv.FormatUint(*c.Shares, 10)})
		}
		if c := l.CPU; c != nil && c.Quota != nil && c.Period != nil && (*c.Quota > 0 || !isNew) {
			list = append(list, setting{"cpu.cfs_period_us", strconv.FormatUint(*c.Period, 10)})
			number("cpu.cfs_quota_us", c.Quota)
		}
	case cgroup1.Memory:
		if m := l.Memory; m != nil {
			number("memory.limit_in_bytes", m.Limit)
			number("memory.soft_limit_in_bytes", m.Reservation)
			number(swapLimit, m.Swap) // which is never below that on memory
			number(socketLimit, m.KernelTCP)
		}
	case cgroup1.Pids:
		if l.Pids != nil {
			number("pids.max", l.Pids.Limit)
		}
	case cgroup1.Devices:
		for i := range l.Devices {
			list = append(list, deviceSetting(&l.Devices[i]))
		}
	}
	return list
}

// deviceSetting is a rule for devices.
func deviceSetting(d *specs.LinuxDeviceCgroup) setting {
	s := setting{file: "devices.deny"}
	if d.Allow {
		s.file = "devices.allow"
	}
	number := func(n *int64) string {
		if n == nil || *n < 0 {
			return "*"
		}
		return strconv.FormatInt(*n, 10)
	}
	s.value = d.Type + " " + number(d.Major) + ":" + number(d.Minor) + " " + d.Access
	return s
}

// makeIn makes the group dir of a controller's hierarchy, unless it is there, and gives it the limits l.
func makeIn(dir string, controller cgroup1.Name, l *specs.LinuxResources) error {
	err := unix.Mkdir(dir, 0o755)
	isNew := err == nil
	switch {
	case errors.Is(err, os.ErrNotExist): // somebody has taken away what it is in
		err = os.MkdirAll(dir, 0o755)
	case errors.Is(err, os.ErrExist):
		err = nil
	}
	list := settings(controller, l, isNew)
	if err != nil || len(list) == 0 {
		return wrapPath(err, "mkdir", dir)
	}
	group, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return wrapPath(err, "open", dir)
	}
	defer func() { _ = unix.Close(group) }()
	for _, s := range list {
		if err := writeAt(group, s); err != nil {
			return fmt.Errorf("%s/%s: %q: %w", dir, s.file, s.value, err)
		}
	}
	return nil
}

// wrapPath says of an error of the kernel where it was.
func wrapPath(err error, op, path string) error {
	if _, bare := err.(unix.Errno); bare { //nolint:errorlint // others have a path
		return &os.PathError{Op: op, Path: path, Err: err}
	}
	return err
}

// writeAt writes to a file of the group whose directory is open. Each setting is one write: so the kernel takes it.
func writeAt(group int, s setting) error {
	fd := -1
	err := error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		fd, err = unix.Openat(group, s.file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return err
	}
	err = unix.EINTR
	for errors.Is(err, unix.EINTR) {
		_, err = unix.Write(fd, []byte(s.value))
	}
	return errors.Join(err, unix.Close(fd))
}
