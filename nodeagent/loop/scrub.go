package loop

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/schema"
)

// What this agent holds it has in memory: a file of it that is damaged or lost while
// the agent runs is written again. Each look at the machine looks at the files that
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
	of   nodeagent.Document // zero: the format of all
	// optional is one that need not be there.
	optional bool
}

// scrub begins to look at the files of what is held.
func (o *owner) scrub(ctx context.Context) {
	if o.scrubs.running {
		return
	}
	o.scrubs.running = true
	documents, seen := o.documents(), o.scrubs.seen
	var processes []Verified
	if r, ok := o.cfg.Runtime.(Verified); ok {
		processes = append(processes, r)
	}
	for _, p := range o.processes {
		if v, ok := p.(Verified); ok {
			processes = append(processes, v)
		}
	}
	o.workers.Go(func() {
		whole, bad := verify(o.disk, documents, seen)
		for _, p := range processes {
			p.Verify()
		}
		o.send(ctx, func() {
			o.scrubs.running, o.scrubs.seen = false, whole
			o.rewriteDamaged(bad)
		})
	})
}

// documents lists what must be on disk.
func (o *owner) documents() []document {
	var list []document
	if !o.disk.docs.Old {
		list = append(list, document{path: filepath.Join(o.disk.root, durable.FormatFile)})
	}
	if !o.idUnsaved {
		for _, name := range []string{identityFile, identityCopy} {
			list = append(list, document{path: filepath.Join(o.disk.root, name), of: nodeagent.Document{Kind: nodeagent.IdentityDocument}})
		}
	}
	for _, d := range o.agent.Documents() {
		list = append(list, document{o.disk.path(d), d, d.Kind == nodeagent.HealthDocument})
		if d.Kind == nodeagent.ViewDocument {
			list = append(list, document{durable.Second(o.disk.path(d)), d, false})
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
func verify(d *disk, list []document, seen map[string]stamp) (whole map[string]stamp, bad []damagedDocument) {
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
func (o *owner) rewriteDamaged(bad []damagedDocument) {
	reported := map[string]string{}
	for _, x := range bad {
		write := o.rewrite(x.document)
		if write == nil || o.agent.Unsaved(x.of) {
			continue // it went meanwhile, or the disk has not had it yet
		}
		err := write()
		reported[x.path] = x.why
		if err == nil || o.scrubs.reported[x.path] != x.why {
			o.disk.reportDamage(x.path, x.why, err == nil)
		}
		if err != nil {
			o.metrics.errors.Inc()
			o.cfg.Log.Error("cannot write a damaged file anew", "file", x.path, "err", err)
		}
	}
	if o.scrubs.reported = reported; len(reported) == 0 {
		o.agent.Condition(schema.DamagedState, nodeagent.Good, "", time.Now())
	}
}

// rewrite returns what writes a document again, nil if it need not be there.
func (o *owner) rewrite(x document) func() error {
	switch x.of.Kind {
	case "":
		return func() error { return o.disk.write(x.path, format{formatNow}) }
	case nodeagent.IdentityDocument:
		return func() error { return o.disk.write(x.path, o.identity) }
	}
	content := o.agent.Content(x.of)
	if content == nil {
		return nil
	}
	return func() error { return o.disk.store(o.cfg.Machine.Name, x.of, content) }
}

// format is what durable.FormatFile holds.
type format struct {
	Format int `json:"format"`
}

// formatNow is the format that this release writes: documents with checksums.
const formatNow = 1

// finishUpgrade gives the documents of an earlier release their checksums, once, and
// says so on disk. What could not be read or written yet is left to the next start.
func (o *owner) finishUpgrade() error {
	d := o.disk
	name := filepath.Join(d.root, durable.FormatFile)
	var f format
	ok, lost, err := d.read(name, &f)
	if ok && f.Format == formatNow || err != nil {
		return err
	}
	if d.docs.Old && o.agent.Unreadable() {
		return nil
	}
	if d.docs.Old {
		for _, x := range o.documents() {
			if durable.Sealed(x.path) || x.optional {
				continue
			}
			if write := o.rewrite(x); write != nil {
				if err := write(); err != nil {
					return err
				}
			}
		}
		d.docs.Old = false
	} else if !ok && lost == nil {
		d.reportDamage(name, "it is missing", true)
	}
	return d.write(name, format{formatNow})
}
