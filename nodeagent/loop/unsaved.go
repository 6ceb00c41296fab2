package loop

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// unsaved is what the disk has refused to keep. It holds for this agent all the
// same: a task is stopped, its end is reported, and the view is acted on, whatever
// the disk does; else a task could keep itself from being stopped by filling it. Only
// an agent that takes over before the disk has it knows what was there before, and
// that is true as far as it goes: how each process ended its keeper has written down,
// in room that was kept for that, and what of the view is newer the master says again.
type unsaved struct {
	files map[string]*unsavedFile // by path
	retry time.Time
}

type unsavedFile struct {
	write func() error
	of    *generation // nil: the agent's own
	err   error       // the last
}

// save has write make the file name. What fails is done again until it works, or the
// directory is removed.
func (l *Loop) save(of *generation, name string, write func() error) {
	err := write()
	if err == nil {
		delete(l.unsaved.files, name)
		return
	}
	l.cfg.Log.Error("cannot write a file; it is in force from memory, and the write is retried", "file", name, "err", err)
	if l.unsaved.files == nil {
		l.unsaved.files = map[string]*unsavedFile{}
	}
	if len(l.unsaved.files) == 0 {
		l.unsaved.retry = time.Now().Add(retryAfter)
	}
	l.unsaved.files[name] = &unsavedFile{write, of, err}
	l.refusedBy(err)
}

// refusedBy takes what the disk has refused for what it says of the machine.
func (l *Loop) refusedBy(err error) {
	l.metrics.errors.Inc()
	switch {
	case noRoom(err):
		l.see(schema.DiskPressure, nodeagent.Bad, "the state directory has no room: "+err.Error())
	case noWrite(err):
		l.see(schema.ReadOnlyFS, nodeagent.Bad, err.Error())
	}
}

// saveAgain tries again what was refused, when that is due. Where one is refused for
// want of room, so are all others: a look is enough.
func (l *Loop) saveAgain(now time.Time) {
	if len(l.unsaved.files) == 0 || now.Before(l.unsaved.retry) {
		return
	}
	l.unsaved.retry = now.Add(retryAfter)
	for _, name := range slices.Sorted(maps.Keys(l.unsaved.files)) {
		f := l.unsaved.files[name]
		err := f.write()
		switch {
		case err == nil:
			l.cfg.Log.Info("written after failed attempts", "file", name)
		case errors.Is(err, fs.ErrNotExist) && f.of != nil: // its directory is gone
		default:
			f.err = err
			l.refusedBy(err)
			if noRoom(err) || noWrite(err) {
				return
			}
			continue
		}
		delete(l.unsaved.files, name)
	}
}

// forget gives up what is to be kept in dir, which was removed.
func (l *Loop) forget(dir string) {
	maps.DeleteFunc(l.unsaved.files, func(name string, _ *unsavedFile) bool { return strings.HasPrefix(name, dir+string(filepath.Separator)) })
}

// unsavedOf says what of g is not on disk; nil: all is.
func (l *Loop) unsavedOf(g *generation) error {
	for _, name := range slices.Sorted(maps.Keys(l.unsaved.files)) {
		if f := l.unsaved.files[name]; f.of == g {
			return f.err
		}
	}
	return nil
}
