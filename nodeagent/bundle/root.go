package bundle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// mountRoot mounts the root directory: the layers with their files given to the
// container's users, below a layer with what mounts need. That is above them, for what is
// mounted must come to lie there and nowhere else: an image may have a link in its place,
// to a directory of which the task writes what is there.
func (c *Container) mountRoot() error {
	users, err := c.userNamespace()
	if err != nil {
		return err
	}
	return errors.Join(c.mountLayers(users.File), users.close())
}

// mountLayers mounts the root directory, with users that are those of a user namespace.
func (c *Container) mountLayers(users *os.File) error {
	if err := c.makeBase(); err != nil {
		return err
	}
	lower := ""
	if c.Writable == "" && len(c.Layers) == 0 { // at least two are needed
		if err := os.Mkdir(emptyLayer, 0o755); err != nil {
			return err
		}
		lower = ":" + emptyLayer
	}
	for i, layer := range c.Layers {
		name := strconv.Itoa(i)
		if err := os.Mkdir(name, 0o711); err != nil {
			return err
		}
		if err := moveLayer(layer, name, users); err != nil {
			return fmt.Errorf("layer %s: %w", layer, err)
		}
		lower = ":" + name + lower
	}
	for i, dir := range c.Packages {
		if err := os.Mkdir(Package(i), 0o711); err != nil {
			return err
		}
		if err := moveLayer(dir, Package(i), users); err != nil {
			return fmt.Errorf("package %s: %w", dir, err)
		}
	}
	options := "lowerdir=" + baseLayer + lower
	if c.Writable != "" {
		// By a name of ours: the machine's may have what divides options.
		if err := os.Mkdir(writableDir, 0o711); err != nil {
			return err
		}
		if err := unix.Mount(c.Writable, writableDir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", c.Writable, err)
		}
		// It goes with the incarnation: nothing of it waits for the disk.
		options += ",volatile,upperdir=" + writableDir + "/" + upperDir + ",workdir=" + writableDir + "/" + workDir
	}
	if err := os.Mkdir(Root, 0o711); err != nil {
		return err
	}
	flags := uintptr(unix.MS_NODEV)
	if c.Writable == "" {
		flags |= unix.MS_RDONLY
	}
	if err := unix.Mount("overlay", Root, "overlay", flags, options); err != nil {
		return fmt.Errorf("mount the image: %w", err)
	}
	return nil
}

// makeBase makes the layer above the image's, for user 0 of the container. Not each kernel that maps
// the users of a disk's files does so for those in memory.
func (c *Container) makeBase() error {
	uid, gid := c.Users.Of(0), c.Groups.Of(0)
	defer unix.Umask(unix.Umask(0)) // of this thread alone, as its mount namespace
	for _, dir := range append([]Directory{{Mode: 0o755}}, c.Base...) {
		name := filepath.Join(baseLayer, dir.Path)
		if err := errors.Join(os.Mkdir(name, dir.Mode), os.Chown(name, c.Users.Of(dir.UID), c.Groups.Of(dir.GID))); err != nil {
			return err
		}
	}
	for _, name := range c.Empty {
		name = filepath.Join(baseLayer, name)
		if err := errors.Join(os.WriteFile(name, nil, 0o644), os.Chown(name, uid, gid)); err != nil {
			return err
		}
	}
	return nil
}

// moveLayer mounts layer at target, read-only and with its files given to users.
func moveLayer(layer, target string, users *os.File) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, layer, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_RDONLY, Userns_fd: uint64(users.Fd())}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("map its users: %w", err)
	}
	return unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}
