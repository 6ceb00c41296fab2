package bundle

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Prepare makes the bundle of a Kernel, and calls run in the mount namespace that has it, with
// the bundle as its working directory: what run forks there keeps it. The runtime is to be
// user 0 of the container, to whom State and the config belong. dir, and what the caller is
// locked to, are as with Start.
func (c *Container) Prepare(dir string, run func(bundle string) error) error {
	return apart(dir, func(bundle string) error {
		if err := c.make(bundle); err != nil {
			return err
		}
		for i, source := range c.Binds {
			if err := bindTo(source, Bind(i)); err != nil {
				return fmt.Errorf("mount %s: %w", source, err)
			}
		}
		uid, gid := c.Users.Of(0), c.Groups.Of(0)
		err := errors.Join(os.WriteFile(configFile, c.Config, 0o600), os.Chown(configFile, uid, gid), os.Mkdir(State, 0o700), os.Chown(State, uid, gid))
		if err != nil {
			return err
		}
		return run(bundle)
	})
}

// bindTo mounts what is at source at target, which it makes.
func bindTo(source, target string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.Mkdir(target, 0o711)
	} else {
		err = os.WriteFile(target, nil, 0o600)
	}
	if err != nil {
		return err
	}
	return unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, "")
}
