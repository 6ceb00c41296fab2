package keeper

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// make makes the namespaces of the calling process what s says.
func (s *Sandbox) make() error {
	if s.Network {
		if err := loopback(); err != nil {
			return err
		}
	}
	// What is mounted here stays here. What the machine unmounts goes here
	// too, or its devices would stay busy for as long as the task runs.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("keep mounts to itself: %w", err)
	}
	sources, err := s.open()
	if err != nil {
		return err
	}
	if s.ReadOnly {
		if err := readOnly(unix.AT_FDCWD, "/", unix.AT_RECURSIVE); err != nil {
			return err
		}
	}
	for i, m := range s.Mounts {
		if err := m.do(s.Root, sources[i]); err != nil {
			return fmt.Errorf("mount %s: %w", m.Target, err)
		}
	}
	for _, m := range s.Mounts { // not before: later ones may make targets in it
		if m.Kind == Tmpfs && m.ReadOnly {
			if err := readOnly(unix.AT_FDCWD, s.Root+m.Target, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				return err
			}
		}
	}
	if s.Root != "" {
		return enter(s.Root)
	}
	return nil
}

// join moves the calling thread, and all that it starts, into the namespaces that files hold,
// by their paths; "" is none. A task inherits them: from a user namespace it could not join them.
func join(ipc, network string) error {
	for _, of := range []struct {
		name, file string
		flag       int
	}{{"shared ipc namespace", ipc, unix.CLONE_NEWIPC}, {"network", network, unix.CLONE_NEWNET}} {
		if of.file == "" {
			continue
		}
		fd, err := unix.Open(of.file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("%s: %w", of.name, &os.PathError{Op: "open", Path: of.file, Err: err})
		}
		err = unix.Setns(fd, of.flag)
		_ = unix.Close(fd)
		if err != nil {
			return fmt.Errorf("%s: %w", of.name, &os.PathError{Op: "setns", Path: of.file, Err: err})
		}
	}
	return nil
}

// readOnly makes a mount read-only, for which Linux 5.12 is needed.
func readOnly(dir int, path string, flags uint) error {
	err := unix.MountSetattr(dir, path, flags, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	if err != nil {
		return fmt.Errorf("make it read-only: %s: %w", path, err)
	}
	return nil
}

// open returns a copy of each Bind's source as it is now, -1 for other kinds.
func (s *Sandbox) open() ([]int, error) {
	fds := make([]int, len(s.Mounts))
	for i, m := range s.Mounts {
		fds[i] = -1
		if m.Kind != Bind {
			continue
		}
		fd, err := unix.OpenTree(unix.AT_FDCWD, m.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE|unix.AT_SYMLINK_NOFOLLOW)
		if err != nil {
			return nil, &fs.PathError{Op: "open", Path: m.Source, Err: err}
		}
		fds[i] = fd
		if m.Plain {
			plain := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV, Propagation: unix.MS_PRIVATE}
			if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &plain); err != nil {
				return nil, fmt.Errorf("take device files and setuid programs of %s for plain files: %w", m.Source, err)
			}
		}
		if m.ReadOnly {
			if err := readOnly(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE); err != nil {
				return nil, err
			}
		}
	}
	return fds, nil
}

// do carries out m, whose target is below base.
func (m Mount) do(base string, source int) error {
	target := base + m.Target
	switch m.Kind {
	case Link:
		return os.Symlink(m.Data, target)
	case Tmpfs, Proc:
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV)
		if m.Nodes {
			flags &^= unix.MS_NODEV
		}
		return unix.Mount(string(m.Kind), target, string(m.Kind), flags, m.Data)
	case Devpts, Mqueue:
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		return unix.Mount(string(m.Kind), target, string(m.Kind), unix.MS_NOSUID|unix.MS_NOEXEC, m.Data)
	case Node:
		return m.Node.make(target)
	case Bind:
		defer unix.Close(source)
		if err := makeTarget(target, source); err != nil {
			return err
		}
		return unix.MoveMount(source, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	return fmt.Errorf("kind %q is unknown", m.Kind)
}

// make makes the node.
func (n *DeviceNode) make(target string) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	if err := unix.Mknod(target, n.Mode|0o600, int(n.Device)); err != nil {
		return err
	}
	if n.Owner == nil {
		return nil
	}
	return os.Lchown(target, n.Owner.UID, n.Owner.GID)
}

// makeTarget makes target, which is of the kind of source, if it is not there.
func makeTarget(target string, source int) error {
	if _, err := os.Lstat(target); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(source, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return os.MkdirAll(target, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	return os.WriteFile(target, nil, 0o444)
}

// enter makes dir the root directory, and takes the old one out of reach.
func enter(dir string) error {
	if err := os.Chdir(dir); err != nil {
		return err
	}
	// Both at once: the old root then lies on top of the new one.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change the root directory: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root directory: %w", err)
	}
	return os.Chdir("/")
}

// loopback brings up lo.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("network: %w", err)
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return fmt.Errorf("network: bring up lo: %w", err)
	}
	return nil
}
