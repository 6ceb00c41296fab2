package loop

import (
	"encoding/json"
	"errors"
	"fmt"
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

// keepSticky does what is to be done to a sticky directory at now. It reports whether
// there is one.
func (d *disk) keepSticky(a nodeagent.StickyAction, now time.Time) (there bool, err error) {
	dir := d.stickyDir(a.Task)
	switch a.Kind {
	case nodeagent.Leave:
		if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) { // its start has failed before
			return false, nil
		}
		return true, d.write(filepath.Join(dir, idleFile), idleDocument{now})
	case nodeagent.Return:
		return true, gone(os.Remove(filepath.Join(dir, idleFile)))
	case nodeagent.Drop:
		return true, d.removeEmptied(dir, filepath.Join(d.root, "sticky"))
	}
	return false, fmt.Errorf("%q of a sticky directory: unknown", a.Kind)
}
