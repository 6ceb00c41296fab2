package keeper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/schema/filelock"
)

// openEvery is the time between two looks at a keeper that is just starting or
// ending, openFor how long that may take.
const (
	openEvery = 2 * time.Millisecond
	openFor   = 10 * time.Second
)

// Open finds the incarnation in dir, which this or an earlier agent has begun. What
// is left of a task without a keeper it kills. A keeper whose files are damaged or
// lost writes them again; one that cannot is killed, and its task with it. It errs
// when the disk cannot be read or written, when ctx ends before all that is done, or
// when somebody has the lock who is no keeper.
func Open(ctx context.Context, dir string, known Known) (*Handle, error) {
	h := &Handle{dir: dir, known: known}
	if _, err := os.Stat(dir); err != nil {
		return nil, err
	}
	o := opening{Handle: h, since: time.Now()}
	for {
		done, err := o.try()
		if err != nil {
			return nil, err
		}
		if done {
			return h, h.seal()
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: %w", dir, context.Cause(ctx))
		case <-time.After(openEvery):
		}
	}
}

// seal gives the documents of an earlier release their checksums.
func (h *Handle) seal() error {
	if !h.known.Documents.Old || len(h.Spec.Command) == 0 || durable.Sealed(filepath.Join(h.dir, SpecFile)) {
		return nil
	}
	h.Spec.Old = true
	errs := []error{writeNow(h.dir, SpecFile, h.Spec)}
	if h.State.Boot != "" {
		errs = append(errs, writeNow(h.dir, StateFile, h.State))
	}
	if h.Exit != nil {
		errs = append(errs, writeEnd(h.dir, *h.Exit))
	}
	return errors.Join(errs...)
}

// opening is an Open in progress.
type opening struct {
	*Handle
	since time.Time
	// damage is what was found, nil if all is well; asked says that the keeper was
	// asked to repair it, killed that it could not.
	damage  *durable.Damage
	missing string // a file that is not there
	asked   bool
	killed  bool
}

// try looks once, and reports whether the Handle is complete.
func (o *opening) try() (bool, error) {
	h := o.Handle
	spec, err := o.read(SpecFile, &h.Spec)
	if err != nil {
		return false, err
	}
	exit, err := h.resolveExit("")
	if err == nil {
		h.Exit = &exit
		_, err = o.read(StateFile, &h.State)
		return true, err
	}
	if !errors.Is(err, filelock.ErrHeld) {
		return false, err
	}
	state, err := o.read(StateFile, &h.State)
	if err != nil {
		return false, err
	}
	if spec && state && !o.killed {
		if ok, err := h.attach(); ok || err != nil {
			o.reportRepaired()
			return ok, err
		}
	}
	return false, o.repair()
}

// reportRepaired reports what was missing and is there again.
func (o *opening) reportRepaired() {
	if report := o.known.Documents.Report; o.asked && o.damage == nil && o.missing != "" && report != nil {
		report(durable.Damage{File: filepath.Join(o.dir, o.missing), Why: "it was missing", Repaired: true})
	}
}

// read reads a document, and reports whether it is there and whole. What is damaged
// is noted once.
func (o *opening) read(name string, v any) (bool, error) {
	docs := o.known.Documents
	if o.damage != nil {
		docs.Report = nil
	}
	docs.Old = docs.Old || o.Spec.Old
	ok, err := read(docs, o.dir, name, v)
	if d := damaged(err); d != nil {
		if o.damage == nil {
			o.damage = d
		}
		return false, nil
	}
	if !ok && err == nil {
		o.missing = name
	}
	return ok, err
}

// startsFor is how long a keeper that starts may be without its state.
const startsFor = 200 * time.Millisecond

// repair has the keeper write its files again, or kills it if it does not.
func (o *opening) repair() error {
	waited := time.Since(o.since)
	if o.damage == nil && waited < startsFor {
		return nil // it is just starting, or ending
	}
	r := living(o.dir, o.known.Boot, &o.State)
	switch {
	case r == nil && waited > openFor:
		return fmt.Errorf("%s: its lock is held, but not by a keeper", o.dir)
	case r == nil:
	case r.repairs && !o.asked:
		o.asked = true
		return gone(r.signal(unix.SIGUSR2))
	case !o.killed && (o.damage != nil && !r.repairs || waited > openFor):
		o.killed = true
		return gone(r.signal(unix.SIGKILL))
	}
	return nil
}

// gone returns err unless it says that there is no such process.
func gone(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// attach opens the keeper that has the lock; false if it is just ending.
func (h *Handle) attach() (bool, error) {
	fd, err := openPID(h.State.Keeper)
	if errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	h.pid = os.NewFile(uintptr(fd), "pidfd")
	return true, nil
}
