package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/schema/thread"
)

// sharesIPC reports whether the tasks of an alloc can share System V IPC, POSIX
// message queues and /dev/shm: to join a namespace takes root.
func (s *surroundings) sharesIPC() bool { return s.isolation.namespaces && os.Geteuid() == 0 }

// shareIPC mounts a new file system on shm, for /dev/shm, and a new ipc namespace
// on the file ipc. Each lasts until it is unmounted, whatever runs inside.
func shareIPC(shm, ipc string) error {
	if err := os.Mkdir(shm, 0o711); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := unix.Mount("tmpfs", shm, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777"); err != nil {
		return fmt.Errorf("mount %s: %w", shm, err)
	}
	f, err := os.OpenFile(ipc, os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return err
	}
	err = thread.Run(func() error {
		if err := unix.Unshare(unix.CLONE_NEWIPC); err != nil {
			return err
		}
		return unix.Mount("/proc/thread-self/ns/ipc", ipc, "", unix.MS_BIND, "")
	})
	if err != nil {
		return fmt.Errorf("new ipc namespace on %s: %w", ipc, err)
	}
	return nil
}

// isNamespace reports whether a namespace is mounted on file.
func isNamespace(file string) bool {
	var s unix.Statfs_t
	return unix.Statfs(file, &s) == nil && s.Type == unix.NSFS_MAGIC
}

// unmount undoes shareIPC. What is not mounted, or not there, is fine.
func unmount(targets []string) error {
	var errs []error
	for _, target := range targets {
		err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if err != nil && err != unix.EINVAL && err != unix.ENOENT {
			errs = append(errs, &os.PathError{Op: "unmount", Path: target, Err: err})
			continue
		}
		if err := os.Remove(target); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
