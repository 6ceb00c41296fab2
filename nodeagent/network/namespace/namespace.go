package namespace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/schema/thread"
)

// ofThread is the calling thread's network namespace.
const ofThread = "/proc/thread-self/ns/net"

// Of IPv4 and of IPv6, which a machine may lack: what of a task's namespace is not as it is
// by default. A task with a network of its own has all its ports, also those below 1024, and
// can ping.
var ofTasks = []struct{ name, value string }{
	{"/proc/sys/net/ipv4/ip_unprivileged_port_start", "0"},
	{"/proc/sys/net/ipv4/ping_group_range", "0 2147483647"},
}

// New makes a namespace for tasks, in which it calls do with a descriptor of it, and then has a new file at path
// hold it.
func New(path string, do func(ns int) error) error {
	return thread.Run(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("network namespace: %w", err)
		}
		ns, err := os.Open(ofThread)
		if err != nil {
			return err
		}
		defer ns.Close()
		for _, s := range ofTasks {
			if err := Set(s.name, s.value); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if err := do(int(ns.Fd())); err != nil {
			return err
		}
		return hold(path)
	})
}

// In calls do in the namespace that the file at path holds, with a descriptor of it.
func In(path string, do func(ns int) error) error {
	return thread.Run(func() error {
		ns, err := os.Open(path)
		if err != nil {
			return err
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", path, err)
		}
		return do(int(ns.Fd()))
	})
}

// hold has a file hold the calling thread's network namespace.
func hold(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o400)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := unix.Mount(ofThread, path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("hold a network namespace: %w", &os.PathError{Op: "mount", Path: path, Err: err})
	}
	return nil
}

// Held reports whether the file at path holds a network namespace.
func Held(path string) bool {
	var s unix.Statfs_t
	return unix.Statfs(path, &s) == nil && s.Type == unix.NSFS_MAGIC
}

// Release removes the file at path, if it is there, whether it holds a namespace or not. The namespace lives on for as long as a
// process is in it.
func Release(path string) error {
	var errs []error
	err := unix.Unmount(path, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // it is no mount
		errs = append(errs, fmt.Errorf("release a network namespace: %w", &os.PathError{Op: "unmount", Path: path, Err: err}))
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Set sets a file below /proc/sys, of the calling thread's namespace, unless it has that value.
func Set(name, value string) error {
	b, err := os.ReadFile(name)
	if err != nil || strings.TrimSpace(string(b)) == value {
		return err
	}
	return os.WriteFile(name, []byte(value), 0) // it is there
}
