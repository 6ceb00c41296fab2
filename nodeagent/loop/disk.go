package loop

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/nodeagent/spread"
	"github.com/musterhq/muster/nodeagent/trash"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/atomicfile"
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
	docs    durable.Documents
	// step is called before each change of the disk, and once after it.
	// Tests kill the agent there.
	step func(what string)
}

// close gives the lock back.
func (d *disk) close() error { return d.lock.Close() }

func (d *disk) dir(task schema.TaskName, generation uint64) string {
	return filepath.Join(d.root, tasksDir, task.Cell, task.User, task.Job, strconv.Itoa(task.Index), strconv.FormatUint(generation, 10))
}

// parse returns the generation whose directory is dir.
func (d *disk) parse(dir string) (schema.TaskRef, error) {
	rel, err := filepath.Rel(filepath.Join(d.root, tasksDir), filepath.Dir(dir))
	if err != nil {
		return schema.TaskRef{}, err
	}
	task, err := schema.ParseTaskName(filepath.ToSlash(rel))
	if err != nil {
		return schema.TaskRef{}, fmt.Errorf("%s: %w", dir, err)
	}
	generation, err := strconv.ParseUint(filepath.Base(dir), 10, 64)
	if err != nil || generation == 0 {
		return schema.TaskRef{}, fmt.Errorf("%s: want the number of a generation at its end", dir)
	}
	return schema.TaskRef{Task: task, Generation: generation}, nil
}

func incarnationDir(dir string, n int) string { return filepath.Join(dir, strconv.Itoa(n)) }

// id names the document in the file name, by its place below root: none counts in
// another's place, and all do when root is moved.
func (d *disk) id(name string) string { return strings.TrimPrefix(name, d.root+"/") }

// write makes v the document in the file name, durably and whole: after a crash the
// file holds either what it held before or v.
func (d *disk) write(name string, v any) error {
	b, err := durable.Seal(d.id(name), v)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	d.step("write " + filepath.Base(name))
	temp := name + ".new"
	if err := d.stage(temp, b); err != nil {
		return err
	}
	d.step("rename " + filepath.Base(name))
	if err := atomicfile.Rename(temp, name); err != nil {
		return err
	}
	d.step("after " + filepath.Base(name))
	return nil
}

// makeDir makes dir and its parents below root, durably. What is no directory in
// their place is moved aside.
func (d *disk) makeDir(dir string) error {
	if dir == d.root {
		return nil
	}
	info, err := os.Lstat(dir)
	if err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(dir)
	if err := d.makeDir(parent); err != nil {
		return err
	}
	if err := d.clear(dir); err != nil {
		return err
	}
	if err := os.Mkdir(dir, dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return atomicfile.SyncDir(parent)
}

// clear moves aside what is at dir and no directory.
func (d *disk) clear(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil || info.IsDir() {
		return gone(err)
	}
	d.reportDamage(dir, "it is no directory", true)
	return atomicfile.MoveAside(dir)
}

func (d *disk) reportDamage(file, why string, repaired bool) {
	if d.docs.Report != nil {
		d.docs.Report(durable.Damage{File: file, Why: why, Repaired: repaired})
	}
}

// writeAssignment makes the generation's directory: from then on it is held.
func (d *disk) writeAssignment(a *schema.Assignment) error {
	dir := d.dir(a.Task, a.Generation)
	var err error
	for range 3 { // remove may take an empty parent away in between
		if err = d.makeDir(filepath.Dir(dir)); err == nil {
			spread.Apart(filepath.Dir(dir))
			err = d.makeDir(dir)
		}
		if !errors.Is(err, fs.ErrNotExist) {
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
	list, err := d.readDir(dir)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, e := range list {
		name := filepath.Join(dir, e.Name())
		switch {
		case !e.IsDir() || strings.Contains(e.Name(), atomicfile.AsideMark):
		case strings.HasSuffix(name, removedSuffix):
			if err := d.trash.Put(name); err != nil {
				d.reportDamage(name, "it cannot be removed: "+err.Error(), false)
			}
		default:
			dirs = append(dirs, name)
		}
	}
	return dirs, nil
}

// readDir lists dir, whatever has become of it: nothing that was done to one
// directory hides the others.
func (d *disk) readDir(dir string) ([]fs.DirEntry, error) {
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrPermission) && os.Chmod(dir, dirMode) == nil {
		d.reportDamage(dir, "its mode did not let the agent read it", true)
		list, err = os.ReadDir(dir)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.EIO), errors.Is(err, fs.ErrPermission):
		d.reportDamage(dir, err.Error(), false)
		return list, nil
	}
	return list, err
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

// read reads the document in the file name into v; false if there is none, or it is
// damaged: damage says so, and has been reported.
func (d *disk) read(name string, v any) (ok bool, damage *durable.Damage, err error) {
	err = d.docs.Read(name, d.id(name), v)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil, nil
	case errors.As(err, &damage):
		return false, damage, nil
	}
	return err == nil, nil, err
}

// tryFile is written to find out whether the state directory can be.
const tryFile = "writable"

// try errs when the state directory cannot be written to. A full disk is
// another matter.
func (d *disk) try() error {
	name := filepath.Join(d.root, tryFile)
	err := os.WriteFile(name, []byte("x"), 0o600)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = nil
	}
	return errors.Join(err, gone(os.Remove(name)))
}

// gone returns err unless it says that there is no such file.
func gone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
