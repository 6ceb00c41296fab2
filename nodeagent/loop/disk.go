package loop

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/nodeagent/trash"
	"github.com/musterhq/muster/schema"
)

// The files of the state directory. A task's directory is
// tasks/<cell>/<user>/<job>/<index>/<generation>/<incarnation>.
const (
	lockFile       = "agent.lock"
	viewFile       = "view.json"
	tasksDir       = "tasks"
	assignmentFile = "assignment.json" // of a generation
	endFile        = "end.json"        // of a generation
	stopFile       = "stop.json"       // of an incarnation
	trashDir       = "removed"
	// removedSuffix marks a directory that an agent of an earlier release was
	// removing: what is in it counts no more.
	removedSuffix = ".removed"

	// dirMode lets tasks, which have other users, reach what is theirs by its
	// path; the agent's own files are readable by nobody else.
	dirMode = 0o711
)

// disk is the state directory. Methods for different generations may be called
// at the same time.
type disk struct {
	root  string
	lock  *Lock
	trash *trash.Bin
	// ballast is given up for what has to be written to a full disk.
	ballast *ballast
	// step is called before each change of the disk, and once after it.
	// Tests kill the agent there.
	step func(what string)
}

// close gives the lock back.
func (d *disk) close() error { return d.lock.Close() }

func (d *disk) dir(task schema.TaskName, generation uint64) string {
	return filepath.Join(d.root, tasksDir, task.Cell, task.User, task.Job, strconv.Itoa(task.Index), strconv.FormatUint(generation, 10))
}

func incarnationDir(dir string, n int) string { return filepath.Join(dir, strconv.Itoa(n)) }

// write writes v to name as JSON, durably and whole: after a crash the file
// holds either what it held before or v.
func (d *disk) write(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	d.step("write " + filepath.Base(name))
	temp := name + ".new"
	if err := d.stage(temp, b); err != nil {
		return err
	}
	d.step("rename " + filepath.Base(name))
	if err := durable.Rename(temp, name); err != nil {
		return err
	}
	d.step("after " + filepath.Base(name))
	return nil
}

// makeDir makes dir and its parents below root, durably.
func (d *disk) makeDir(dir string) error {
	if dir == d.root {
		return nil
	}
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	parent := filepath.Dir(dir)
	if err := d.makeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return durable.SyncDir(parent)
}

// writeAssignment makes the generation's directory: from then on it is held.
func (d *disk) writeAssignment(a *schema.Assignment) error {
	dir := d.dir(a.Task, a.Generation)
	var err error
	for range 3 { // remove may take an empty parent away in between
		if err = d.makeDir(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return err
	}
	return d.write(filepath.Join(dir, assignmentFile), a)
}

// remove removes dir, if it is there: at once as far as a later reader is concerned.
// Its disk space is free when the trash is empty.
func (d *disk) remove(dir string) error {
	d.step("remove " + filepath.Base(dir))
	if err := d.trash.Put(dir); err != nil {
		return err
	}
	d.step("after remove " + filepath.Base(dir))
	return nil
}

// removeTask removes a generation's directory, and its parents that are empty.
func (d *disk) removeTask(dir string) error {
	return d.removeEmptied(dir, filepath.Join(d.root, tasksDir))
}

// removeEmptied removes dir, and its parents below top that are empty then.
func (d *disk) removeEmptied(dir, top string) error {
	if err := d.remove(dir); err != nil {
		return err
	}
	for p := filepath.Dir(dir); p != top && os.Remove(p) == nil; p = filepath.Dir(p) {
	}
	return nil
}

// generations lists the directories of generations, and finishes removals that
// were cut short.
func (d *disk) generations() ([]string, error) {
	return d.below(filepath.Join(d.root, tasksDir), 5) // cell, user, job, index, generation
}

// below lists the directories that lie so many levels below top, and finishes
// removals that were cut short.
func (d *disk) below(top string, levels int) ([]string, error) {
	dirs := []string{top}
	for range levels {
		var next []string
		for _, dir := range dirs {
			names, err := d.entries(dir)
			if err != nil {
				return nil, err
			}
			next = append(next, names...)
		}
		dirs = next
	}
	return dirs, nil
}

// entries lists the directories in dir; none if it does not exist.
func (d *disk) entries(dir string) ([]string, error) {
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var dirs []string
	for _, e := range list {
		name := filepath.Join(dir, e.Name())
		switch {
		case !e.IsDir():
		case strings.HasSuffix(name, removedSuffix):
			if err := d.trash.Put(name); err != nil {
				return nil, err
			}
		default:
			dirs = append(dirs, name)
		}
	}
	return dirs, nil
}

// incarnations lists the numbers of the incarnations in a generation's
// directory.
func (d *disk) incarnations(dir string) ([]int, error) {
	dirs, err := d.entries(dir)
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, name := range dirs {
		if n, err := strconv.Atoi(filepath.Base(name)); err == nil && n > 0 {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// readGeneration reads what is on disk of a generation but its incarnations.
// A directory without an assignment was never started: false.
func (d *disk) readGeneration(dir string) (h nodeagent.Held, ok bool, err error) {
	ok, err = read(filepath.Join(dir, assignmentFile), &h.Assignment)
	if err != nil || !ok {
		return h, false, err
	}
	a := &h.Assignment
	if a.Job == nil || d.dir(a.Task, a.Generation) != dir {
		return h, false, fmt.Errorf("%s in %s is of another task", assignmentFile, dir)
	}
	var end schema.Cause
	if ok, err := read(filepath.Join(dir, endFile), &end); err != nil {
		return h, false, err
	} else if ok {
		h.End = &end
	}
	return h, true, nil
}

// readStop reads why the incarnation in dir was told to stop; nil if it was not.
func readStop(dir string) (*schema.Cause, error) {
	var stop schema.Cause
	ok, err := read(filepath.Join(dir, stopFile), &stop)
	if err != nil || !ok {
		return nil, err
	}
	return &stop, nil
}

// read reads JSON from name into v; false if there is no such file.
func read(name string, v any) (bool, error) {
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return false, fmt.Errorf("read %s: %w", name, err)
	}
	return true, nil
}
