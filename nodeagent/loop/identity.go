package loop

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"syscall"
)

// The machine's id is in two files, since it cannot be found out again.
const (
	identityFile = "machine.json"
	identityCopy = "machine-copy.json"
)

// identity is what the agent must remember of itself.
type identity struct {
	// ID distinguishes the machine from all others, whatever their names: it was drawn at
	// random when the state directory was created.
	ID string `json:"id"`
	// Hardware is the machine's, as Config has it, that the id was drawn on; "" if
	// that was not known.
	Hardware string `json:"hardware,omitempty"`
	// Refused says that another agent has the machine's name, as its master said
	// last, or that the directory was copied from another machine: what is in it was
	// assigned to that.
	Refused bool `json:"refused,omitempty"`
	// Boot, Path, Device and Inode say where the directory was when an agent last
	// ran on it.
	Boot   string `json:"boot,omitempty"`
	Path   string `json:"path,omitempty"`
	Device uint64 `json:"device,omitempty"`
	Inode  uint64 `json:"inode,omitempty"`
}

// ErrCopied is in New's error when the state directory is a copy that was made on
// this machine since it was started: an agent would take the tasks of the directory
// that was copied, which may run, for dead ones of its own.
var ErrCopied = errors.New("it is a copy of another state directory")

// at returns i with where the directory is now.
func (i identity) at(dir, boot string) (identity, error) {
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); err != nil {
		return i, fmt.Errorf("state directory %s: %w", dir, err)
	}
	i.Boot, i.Path, i.Device, i.Inode = boot, dir, uint64(st.Dev), st.Ino //nolint:unconvert // on other processors it is narrower
	return i, nil
}

// copied reports whether a directory that was at i before is another one now. One
// that was moved is the same, and one whose file system was mounted again.
func (i identity) copied(now identity) bool {
	return i.Boot != "" && i.Boot == now.Boot && i.Path != now.Path && (i.Device != now.Device || i.Inode != now.Inode)
}

// identify reads who the machine is, or makes it somebody; now is where the directory
// is, and on which hardware. A directory that was copied from another machine makes it
// somebody else than that. It is whole if that is on disk as it is.
func (d *disk) identify(log *slog.Logger, now identity) (is identity, whole bool, err error) {
	found, whole, err := d.readIdentity()
	is = identity{ID: rand.Text(), Hardware: now.Hardware}
	switch {
	case err == nil && found.copied(now):
		return is, false, fmt.Errorf("state directory %s: %w, %s, whose tasks may run", now.Path, ErrCopied, found.Path)
	case err == nil && found.Hardware != "" && now.Hardware != "" && found.Hardware != now.Hardware:
		is.Refused = true
		log.Warn("the state directory was copied from another machine: this one gets an id of its own, and starts nothing before a master has welcomed it", "dir", now.Path, "was", found.ID, "is", is.ID)
	case err == nil:
		is = found
		is.Hardware = cmp.Or(found.Hardware, now.Hardware)
	case !errors.Is(err, fs.ErrNotExist):
		log.Error("the machine's id cannot be read, and it gets another: its master takes it for another machine until the name is free", "is", is.ID, "err", err)
	}
	is.Boot, is.Path, is.Device, is.Inode = now.Boot, now.Path, now.Device, now.Inode
	return is, whole && is == found, nil
}

// writeIdentity writes down who the machine is.
func (d *disk) writeIdentity(is identity) error {
	if err := d.write(filepath.Join(d.root, identityCopy), is); err != nil {
		return err
	}
	return d.write(filepath.Join(d.root, identityFile), is)
}

// readIdentity errs with fs.ErrNotExist in a directory that has none yet. It is whole
// if both files have it.
func (d *disk) readIdentity() (found identity, whole bool, err error) {
	var all []identity
	var errs []error
	missing := ""
	for _, name := range []string{identityFile, identityCopy} {
		var is identity
		switch ok, damage, err := d.read(filepath.Join(d.root, name), &is); {
		case damage != nil:
			errs = append(errs, damage)
		case err != nil:
			errs = append(errs, err)
		case !ok:
			missing = name
		case is.ID == "":
			errs = append(errs, fmt.Errorf("%s: no id in it", name))
		default:
			all = append(all, is)
		}
	}
	switch {
	case len(all) == 2 && all[0] != all[1]: // it crashed between the two
		all[0].Refused = all[0].Refused || all[1].Refused
		return all[0], false, nil
	case len(all) > 0:
		if missing != "" {
			d.reportDamage(filepath.Join(d.root, missing), "it is missing; its other copy is there", true)
		}
		return all[0], len(all) == 2, nil
	case len(errs) > 0:
		return identity{}, false, errors.Join(errs...)
	}
	return identity{}, false, fs.ErrNotExist
}
