package loop

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/schema"
)

// idleFile says since when a sticky directory's task is not here.
const idleFile = "idle.json"

func (d *disk) stickyDir(task schema.TaskName) string {
	return filepath.Join(d.root, nodeagent.StickyPath(task))
}

// sticky lists the sticky directories, by task, with the time since when each is
// idle; zero for one that is not.
func (d *disk) sticky() (map[schema.TaskName]time.Time, error) {
	top := filepath.Join(d.root, "sticky")
	dirs, err := d.below(top, 4) // cell, user, job, index
	if err != nil {
		return nil, err
	}
	found := map[schema.TaskName]time.Time{}
	for _, dir := range dirs {
		rel, err := filepath.Rel(top, dir)
		if err != nil {
			return nil, err
		}
		task, err := schema.ParseTaskName(filepath.ToSlash(rel))
		if err != nil {
			continue // not ours: left alone
		}
		if found[task], err = d.readIdle(filepath.Join(dir, idleFile)); err != nil {
			d.reportDamage(dir, err.Error(), false) // and is kept
		}
	}
	return found, nil
}

// idleDocument is what idleFile holds.
type idleDocument struct {
	Since time.Time `json:"since"`
}

// readIdle returns the time that a file of that kind has; zero if there is none. One
// that is damaged says no more than that: its directory is kept as if it had been
// left now.
func (d *disk) readIdle(name string) (time.Time, error) {
	if d.docs.Old { // of an earlier release
		var since time.Time
		if b, err := durable.ReadRegular(name); err == nil && json.Unmarshal(b, &since) == nil {
			return since, d.write(name, idleDocument{since})
		}
	}
	var idle idleDocument
	_, damage, err := d.read(name, &idle)
	if damage != nil {
		idle.Since = time.Now()
		err = d.write(name, idle)
	}
	return idle.Since, err
}

// stick does what the plan says of sticky directories, and reports whether
// anything has changed.
func (l *Loop) stick(plan nodeagent.Plan) bool {
	acted := false
	for _, a := range plan.Sticky {
		log := l.cfg.Log.With("task", a.Task.Short())
		if err := l.stickOne(a); err != nil {
			l.metrics.errors.Inc()
			log.Error("cannot "+string(a.Kind)+" a sticky directory", "err", err)
			continue
		}
		acted = true
		switch a.Kind {
		case nodeagent.Leave:
			log.Info("its sticky directory stays for a while", "until", l.sticky[a.Task].Add(nodeagent.KeepSticky))
		case nodeagent.Drop:
			log.Info("its sticky directory was removed: the task has left this machine")
		}
	}
	return acted
}

func (l *Loop) stickOne(a nodeagent.StickyAction) error {
	dir := l.disk.stickyDir(a.Task)
	switch a.Kind {
	case nodeagent.Leave:
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) { // its start has failed before
			delete(l.sticky, a.Task)
			return nil
		}
		now := time.Now()
		if err := l.disk.write(filepath.Join(dir, idleFile), idleDocument{now}); err != nil {
			return err
		}
		l.sticky[a.Task] = now
	case nodeagent.Return:
		if err := os.Remove(filepath.Join(dir, idleFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		l.sticky[a.Task] = time.Time{}
	case nodeagent.Drop:
		if err := l.disk.removeEmptied(dir, filepath.Join(l.disk.root, "sticky")); err != nil {
			return err
		}
		delete(l.sticky, a.Task)
		l.removed = true
	}
	return nil
}
