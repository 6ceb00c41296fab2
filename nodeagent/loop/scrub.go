package loop

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/schema"
)

// What this agent holds it has in memory: a file of it that is damaged or lost while
// the agent runs is written anew. Each look at the machine looks at the files that
// have changed since the last.

// scrubs is how that goes on. It belongs to Run's goroutine.
type scrubs struct {
	running  bool
	seen     map[string]stamp  // of files that were whole, by path
	reported map[string]string // what is wrong with those that were not
}

// stamp changes with each change of a file.
type stamp struct {
	inode   uint64
	size    int64
	changed syscall.Timespec
	mode    uint32
}

// document is one that must be there.
type document struct {
	path string
	of   key // zero: of the machine
	// optional is one that need not be there.
	optional bool
}

// Verified is the part of a Process, or of the Runtime, that keeps files of its own.
type Verified interface {
	// Verify has what is damaged or lost of them written again, and reports it.
	Verify()
}

// scrub begins to look at the files of what is held.
func (l *Loop) scrub(ctx context.Context) {
	if l.scrubs.running {
		return
	}
	l.scrubs.running = true
	documents, seen := l.documents(), l.scrubs.seen
	var processes []Verified
	if r, ok := l.cfg.Runtime.(Verified); ok {
		processes = append(processes, r)
	}
	for _, g := range l.held {
		if p, ok := g.process.(Verified); ok && !g.unread {
			processes = append(processes, p)
		}
	}
	l.workers.Go(func() {
		whole, bad := l.disk.verify(documents, seen)
		for _, p := range processes {
			p.Verify()
		}
		l.send(ctx, func() {
			l.scrubs.running, l.scrubs.seen = false, whole
			l.rewriteDamaged(bad)
		})
	})
}

// documents lists what must be on disk.
func (l *Loop) documents() []document {
	var list []document
	if !l.disk.docs.Old {
		list = append(list, document{path: filepath.Join(l.disk.root, durable.FormatFile)})
	}
	if l.memory.view != nil || l.memory.epoch > 0 {
		list = append(list, document{path: filepath.Join(l.disk.root, viewFile)})
	}
	if !l.identityUnsaved {
		for _, name := range []string{identityFile, identityCopy} {
			list = append(list, document{path: filepath.Join(l.disk.root, name)})
		}
	}
	for task, idle := range l.sticky {
		if !idle.IsZero() {
			list = append(list, document{path: filepath.Join(l.disk.stickyDir(task), idleFile), of: key{task: task}})
		}
	}
	for k, g := range l.held {
		if g.unread {
			continue
		}
		if g.written {
			list = append(list, document{path: filepath.Join(g.dir, assignmentFile), of: k})
		}
		if g.End != nil {
			list = append(list, document{path: filepath.Join(g.dir, endFile), of: k})
		}
		for i := range g.Incarnations {
			c, dir := &g.Incarnations[i], incarnationDir(g.dir, g.Incarnations[i].Number)
			if c.Stop != nil {
				list = append(list, document{path: filepath.Join(dir, stopFile), of: k})
			}
			if c.Exit == nil && c.Probe.State != "" {
				list = append(list, document{path: filepath.Join(dir, healthFile), of: k, optional: true})
			}
		}
	}
	return list
}

// damagedDocument is one that was found so.
type damagedDocument struct {
	document
	why string
}

// verify looks at documents but those that have not changed since they were seen. It
// returns which are whole, and which are not.
func (d *disk) verify(list []document, seen map[string]stamp) (whole map[string]stamp, bad []damagedDocument) {
	whole = make(map[string]stamp, len(list))
	quiet := d.docs // who takes the result reports it, if it is still so then
	quiet.Report = nil
	for _, x := range list {
		s, err := stampOf(x.path)
		if err == nil && s == seen[x.path] {
			whole[x.path] = s
			continue
		}
		var none struct{}
		damage := (*durable.Damage)(nil)
		err = quiet.Read(x.path, d.id(x.path), &none)
		switch {
		case errors.As(err, &damage):
			bad = append(bad, damagedDocument{x, damage.Why})
		case errors.Is(err, fs.ErrNotExist) && !x.optional:
			bad = append(bad, damagedDocument{x, "it is missing"})
		case err == nil && s.mode&0o077 != 0:
			bad = append(bad, damagedDocument{x, "its mode let others read or write it"})
		case err == nil:
			whole[x.path] = s
		}
	}
	return whole, bad
}

func stampOf(name string) (stamp, error) {
	info, err := os.Lstat(name)
	if err != nil {
		return stamp{}, err
	}
	s, _ := info.Sys().(*syscall.Stat_t) // as on Linux
	return stamp{inode: s.Ino, size: s.Size, changed: s.Ctim, mode: s.Mode}, nil
}

// rewriteDamaged writes again what was found damaged and is still to be there, and makes it the
// machine's condition until a look finds nothing.
func (l *Loop) rewriteDamaged(bad []damagedDocument) {
	reported := map[string]string{}
	for _, x := range bad {
		write := l.rewrite(x.document)
		if _, never := l.unsaved.files[x.path]; write == nil || never {
			continue // it went meanwhile, or the disk has not had it yet
		}
		err := write()
		reported[x.path] = x.why
		if err == nil || l.scrubs.reported[x.path] != x.why {
			l.disk.reportDamage(x.path, x.why, err == nil)
		}
		if err != nil {
			l.metrics.errors.Inc()
			l.cfg.Log.Error("cannot write a damaged file anew", "file", x.path, "err", err)
		}
	}
	if l.scrubs.reported = reported; len(reported) == 0 {
		l.see(schema.DamagedState, nodeagent.Good, "")
	}
}

// rewrite returns what writes a document anew, nil if it need not be there.
func (l *Loop) rewrite(x document) func() error {
	name := filepath.Base(x.path)
	switch name {
	case durable.FormatFile:
		return func() error { return l.disk.write(x.path, format{formatNow}) }
	case identityFile, identityCopy:
		return func() error { return l.disk.write(x.path, l.identity) }
	case viewFile:
		return func() error { return l.disk.writeMemory(l.cfg.Machine.Name, l.memory) }
	case idleFile:
		idle, ok := l.sticky[x.of.task]
		if !ok || idle.IsZero() {
			return nil
		}
		return func() error { return l.disk.write(x.path, idleDocument{idle}) }
	}
	g := l.held[x.of]
	if g == nil || g.unread {
		return nil
	}
	switch {
	case name == assignmentFile && g.written:
		return func() error { return l.disk.writeAssignment(&g.Assignment) }
	case name == endFile && g.End != nil:
		return func() error { return l.disk.write(x.path, g.End) }
	}
	for i := range g.Incarnations {
		c := &g.Incarnations[i]
		switch {
		case incarnationDir(g.dir, c.Number) != filepath.Dir(x.path):
		case name == stopFile && c.Stop != nil:
			return func() error { return l.disk.write(x.path, c.Stop) }
		case name == healthFile && c.Exit == nil:
			return func() error { return l.disk.write(x.path, knownHealth{c.Probe.State, c.Probe.Message}) }
		}
	}
	return nil
}

// format is what durable.FormatFile holds.
type format struct {
	Format int `json:"format"`
}

// formatNow is the format that this release writes: documents with checksums.
const formatNow = 1

// finishUpgrade gives the documents of an earlier release their checksums, once, and
// says so on disk. What could not be read or written yet is left to the next start.
func (l *Loop) finishUpgrade() error {
	d := l.disk
	name := filepath.Join(d.root, durable.FormatFile)
	var f format
	if ok, _, err := d.read(name, &f); ok && f.Format == formatNow || err != nil {
		return err
	}
	for _, g := range l.held {
		if d.docs.Old && g.unread {
			return nil
		}
	}
	if d.docs.Old {
		for _, x := range l.documents() {
			if durable.Sealed(x.path) || x.optional {
				continue
			}
			if write := l.rewrite(x); write != nil {
				if err := write(); err != nil {
					return err
				}
			}
		}
		d.docs.Old = false
	}
	return d.write(name, format{formatNow})
}
