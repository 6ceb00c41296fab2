package keeper

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/schema/atomicfile"
)

// seenFile is what is at a name: it changes with each change of a file.
type seenFile struct {
	inode   uint64
	mode    uint32
	changed unix.Timespec
}

// look returns what is at the names that a running incarnation must have.
func (h *Handle) look() map[string]seenFile {
	seen := map[string]seenFile{}
	for _, name := range []string{".", SpecFile, StateFile, LockFile} {
		var s unix.Stat_t
		if unix.Lstat(filepath.Join(h.dir, name), &s) != nil {
			continue
		}
		p := seenFile{inode: s.Ino, mode: s.Mode, changed: s.Ctim}
		if name == "." || name == LockFile { // which change with what is made in them, or by who holds them
			p.changed = unix.Timespec{}
		}
		seen[name] = p
	}
	return seen
}

// Verify looks at the files of a running incarnation, if they have changed since the
// last call. Those that are damaged or lost it writes again, and it has the keeper take
// the lock of what is in the place of its own. It is not for two goroutines at once.
func (h *Handle) Verify() {
	if h.pid == nil || h.closed.Load() {
		return
	}
	now := h.look()
	if h.seen != nil && maps.Equal(h.seen, now) {
		return
	}
	lost := h.repairDir()
	for name, v := range map[string]any{SpecFile: h.Spec, StateFile: h.State} {
		lost = h.repair(name, v) || lost
	}
	was := h.seen[LockFile]
	if is, ok := now[LockFile]; !ok || h.seen != nil && is != was || is.mode&unix.S_IFMT != unix.S_IFREG {
		lost = true
		h.reportDamage(LockFile, "it is not the one that its keeper holds")
	}
	if r := living(h.dir, h.known.Boot, &h.State); lost && r != nil && r.repairs {
		_ = r.signal(unix.SIGUSR2) // gone: then it has ended
	}
	h.seen = nil
	if !lost {
		h.seen = now
	}
}

// repairDir makes the directory again, if it is gone.
func (h *Handle) repairDir() bool {
	if !lostDir(h.dir) {
		return false
	}
	_ = atomicfile.Aside(h.dir)
	if err := os.Mkdir(h.dir, 0o711); err != nil {
		return false // its parent is to be made first: the next time
	}
	_ = os.Chmod(h.dir, 0o711) // whatever the umask
	h.reportDamage(".", "it was missing")
	return true
}

// repair writes a document again if it is damaged or lost, and reports whether it was.
func (h *Handle) repair(name string, v any) bool {
	quiet := durable.Documents{Old: h.known.Documents.Old || h.Spec.Old}
	var none struct{}
	ok, err := read(quiet, h.dir, name, &none)
	d := damaged(err)
	switch {
	case ok, err != nil && d == nil:
		return false
	case d == nil:
		d = &durable.Damage{Why: "it was missing"}
	}
	if err := writeNow(h.dir, name, v); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false // the next time
	}
	h.reportDamage(name, d.Why)
	return true
}

func (h *Handle) reportDamage(name, why string) {
	if report := h.known.Documents.Report; report != nil {
		report(durable.Damage{File: filepath.Join(h.dir, name), Why: why, Repaired: true})
	}
}
