package loop_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/nodeagent/loop"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/turns"
)

// Each file of a state directory is damaged in each of these ways, while no agent runs.
var waysToDamage = []string{"truncated", "deleted", "garbage", "another's", "older"}

// eachFile is a machine with all kinds of task, and copies of its files.
type eachFile struct {
	*bench
	older map[string][]byte // by path, as they were before all tasks began again
	now   map[string]schema.TaskStatus
	uids  map[string]string // of each task, as it said itself
}

// ofTask is a path below the state directory that is of a task: its job, generation and
// incarnation, and what is below that.
var ofTask = regexp.MustCompile(`^tasks/local/\w+/(\w+)/0/\d+/(?:\d+/)?([^/]+)$`)

// tasks are one of each kind: of two owners, in an alloc, with checks, with a directory
// that stays, one that has ended, and one that does not stop.
func (e *eachFile) tasks() {
	const rest = `echo uid $MUSTER_JOB $(id -u) >>%s; %s`
	add := func(job, user string, kind schema.JobKind, command string) *schema.Assignment {
		generation := uint64(len(e.view) + 1)
		a := e.task(job, generation, kind, fmt.Sprintf(rest, e.log, command))
		a.Task.User, a.Job.User = user, user
		e.view = append(e.view, a)
		return &e.view[len(e.view)-1]
	}
	add("a", "ada", schema.Service, "exec sleep 1000")
	add("b", "bob", schema.Service, "exec sleep 1000")
	add("checked", "ada", schema.Service, "exec sleep 1000").Job.Task.Health = &schema.Health{
		Exec: &schema.ExecCheck{Command: []string{"/bin/true"}}, IntervalSeconds: 1, TimeoutSeconds: 30, Failures: 3, Successes: 1,
	}
	add("stays", "bob", schema.Service, "exec sleep 1000").Job.Task.Sticky = schema.StickyHere
	add("done", "ada", schema.Batch, "exit 0")
	deaf := add("deaf", "bob", schema.Service, "while :; do sleep 1000; done")
	deaf.Job.Task.GraceSeconds = 1000
	deaf.Job.Task.Process.Command[2] = `trap "" TERM; ` + deaf.Job.Task.Process.Command[2] // before it says that it has begun
	box := add("box", "ada", schema.Allocs, "")
	box.Job.Task.Process = schema.Process{}
	box.Job.Tasks = 1
	inside := add("inside", "ada", schema.Service, "exec sleep 1000")
	inside.Alloc = &schema.AllocUse{Set: "box", Generation: box.Generation}
	for i := range e.view {
		e.view[i].Data = schema.DigestOf(e.view[i].Job)
	}
}

// settled waits until all is as it was: what is to run runs, and the others do not.
func (e *eachFile) settled(what string) {
	e.t.Helper()
	e.now = e.until(what, func(s schema.TaskStatus) bool {
		switch s.Task.Job {
		case "done":
			return s.State == schema.Dead && s.End.Kind == schema.CauseFinished
		case "checked":
			return s.State == schema.Running && s.Health == schema.Healthy
		case "deaf":
			return s.State == schema.Running || s.State == schema.Stopping
		}
		return s.State == schema.Running
	})
	for job := range e.now {
		if job != "box" { // what runs may not have said so yet
			eventually(e.t, job+" has begun", func() bool { return e.begins(job) > 0 })
		}
	}
}

// again has each task but the one that is done begin again.
func (e *eachFile) again() {
	e.t.Helper()
	before, begins := e.now, map[string]int{}
	for job, s := range before {
		if s.PID != 0 && job != "box" {
			begins[job] = e.begins(job)
			if err := syscall.Kill(s.PID, syscall.SIGKILL); err != nil {
				e.t.Fatal(err)
			}
		}
	}
	e.until("begun again", func(s schema.TaskStatus) bool {
		return s.Task.Job == "done" || s.Task.Job == "box" || s.State == schema.Running && s.Incarnation > before[s.Task.Job].Incarnation
	})
	for job, n := range begins { // what runs may not have said so yet
		eventually(e.t, job+" has begun again", func() bool { return e.begins(job) > n })
	}
}

// files lists the state directory's files, by path, without those that tasks made.
func (e *eachFile) files() map[string][]byte {
	e.t.Helper()
	found := map[string][]byte{}
	err := filepath.WalkDir(e.dir, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(e.dir, path) // it is below
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "work" || d.Name() == "shared" || d.Name() == "removed" || d.Name() == "data"):
			return filepath.SkipDir
		case d.Type().IsRegular():
			b, err := os.ReadFile(path)
			if errors.Is(err, syscall.EINVAL) || errors.Is(err, fs.ErrNotExist) { // a namespace is mounted there, or it went
				return nil
			}
			found[rel] = b
			return err
		}
		return nil
	})
	if err != nil {
		e.t.Fatal(err)
	}
	return found
}

// kindOf is what a file of a task is called, and its job; "" for a file of the machine.
func kindOf(path string) (job, name string) {
	if m := ofTask.FindStringSubmatch(path); m != nil {
		return m[1], m[2]
	}
	return "", path
}

// newest are the paths of the files that there are, of each task the last of each kind.
func (e *eachFile) newest() []string {
	last := map[string]string{}
	for _, path := range slices.Sorted(maps.Keys(e.files())) {
		job, name := kindOf(path)
		last[job+"/"+name] = path
	}
	return slices.Sorted(maps.Values(last))
}

// kinds are a path for each kind of file: those of tasks that run are of one of them, but
// for what only others have, or what means something else there.
func (e *eachFile) kinds() []string {
	first := map[string]string{}
	for _, path := range e.newest() {
		job, name := kindOf(path)
		if job != "done" && job != "box" || filepath.Ext(name) != ".json" {
			job = ""
		}
		if first[job+"/"+name] == "" {
			first[job+"/"+name] = path
		}
	}
	return slices.Sorted(maps.Values(first))
}

// damage damages a file, and returns which jobs that may cost a restart, and whether it
// has changed anything; false if there is nothing to damage it by.
func (e *eachFile) damage(path, way string) (jobs []string, changed, ok bool) {
	e.t.Helper()
	job, name := kindOf(path)
	full := filepath.Join(e.dir, path)
	was, err := os.ReadFile(full)
	if err != nil {
		return nil, false, false // it went meanwhile
	}
	jobs = []string{job}
	switch way {
	case "truncated":
		err = os.Truncate(full, int64(len(was)/2))
		changed = len(was) > 0
	case "deleted":
		err = os.Remove(full)
		changed = true
	case "garbage":
		err = os.WriteFile(full, []byte("\x7fELF\x00\xff{{{\""), 0o600)
		changed = true
	case "another's":
		other := e.another(path)
		if other == "" {
			return nil, false, false
		}
		err = unix.Renameat2(unix.AT_FDCWD, full, unix.AT_FDCWD, filepath.Join(e.dir, other), unix.RENAME_EXCHANGE)
		second, _ := kindOf(other)
		jobs, changed = append(jobs, second), len(was) > 0
	case "older":
		old, found := e.older[path]
		if !found { // of the incarnation before
			for p, b := range e.older {
				if j, n := kindOf(p); j == job && n == name && job != "" {
					old, found = b, true
				}
			}
		}
		if !found || bytes.Equal(old, was) {
			return nil, false, false
		}
		err, changed = os.WriteFile(full, old, 0o600), true
	}
	if err != nil {
		e.t.Fatalf("%s, %s: %v", path, way, err)
	}
	return jobs, changed, true
}

// another returns a file of the same kind of another task, or another document of the
// machine.
func (e *eachFile) another(path string) string {
	job, name := kindOf(path)
	for _, other := range e.newest() {
		j, n := kindOf(other)
		if job != "" && j != "" && j != job && n == name || job == "" && j == "" && other != path && filepath.Ext(other) == ".json" && filepath.Dir(other) == filepath.Dir(path) {
			return other
		}
	}
	return ""
}

// pidOf is the process of a task.
func (e *eachFile) pidOf(job string) int { return e.now[job].PID }

// check holds what has become of the tasks to what the damage may cost.
func (e *eachFile) check(what string, jobs []string, before map[string]schema.TaskStatus, begins map[string]int) {
	e.t.Helper()
	for job, s := range e.now {
		if job == "box" {
			continue
		}
		n := e.begins(job) - begins[job]
		may := slices.Contains(jobs, job) || job == "inside" && slices.Contains(jobs, "box")
		switch {
		case job == "done" && n > 0:
			e.t.Errorf("%s: what has finished has begun again", what)
		case !may && (n > 0 || s.PID != before[job].PID):
			e.t.Errorf("%s: %s has begun %d times, and was not damaged: %+v", what, job, n, s.Exits)
		case n > 1:
			e.t.Errorf("%s: %s has begun %d times, want at most once more", what, job, n)
		case n == 1 && (len(s.Exits) == 0 || s.Exits[len(s.Exits)-1].Message == ""):
			e.t.Errorf("%s: %s has begun again, and nothing says why: %+v", what, job, s.Exits)
		case n == 1:
			e.t.Logf("%s: %s has begun again: %s", what, job, s.Exits[len(s.Exits)-1].Message)
		}
	}
	text, err := os.ReadFile(e.log)
	if err != nil {
		e.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != "uid" {
			continue
		}
		if was, ok := e.uids[f[1]]; ok && was != f[2] {
			e.t.Errorf("%s: %s runs as %s, and ran as %s", what, f[1], f[2], was)
		}
		e.uids[f[1]] = f[2]
	}
	if os.Geteuid() == 0 && e.uids["a"] == e.uids["b"] {
		e.t.Errorf("%s: tasks of two owners run as %s", what, e.uids["a"])
	}
}

// TestDamagedEachFile takes every file of the state directory of a machine with tasks of
// all kinds and damages it in each way, one at a time, with a new agent each time. That
// starts, at most the task whose file it was begins again, with a cause, nothing runs
// twice or as another's user, and the machine has the condition.
func TestDamagedEachFile(t *testing.T) {
	t.Parallel()
	e := &eachFile{bench: newBench(t), uids: map[string]string{}}
	e.with = func(cfg *loop.Config) {
		cfg.Meter, cfg.SampleEvery, cfg.DiskEvery, cfg.BallastBytes = e.processes, 50*time.Millisecond, time.Second, 128<<10
	}
	t.Cleanup(func() { // it would not stop
		if pid := e.pidOf("deaf"); pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	e.begin()
	e.tasks()
	e.assign()
	e.settled("begun")
	e.older = e.files()
	e.again()
	for i := range e.view { // what stays is given back by one that leaves
		if e.view[i].Task.Job == "deaf" {
			e.view[i].Stop = &schema.Cause{Kind: schema.CauseUpdate}
		}
	}
	e.assign()
	e.settled("begun again")
	n := 0
	for _, path := range e.kinds() {
		for _, way := range waysToDamage {
			if n++; testing.Short() && n%7 == 0 || !testing.Short() && turns.Takes(n) {
				e.try(e.place(path), way)
			}
		}
	}
}

// place is where the file of that kind is now: the task may have begun again.
func (e *eachFile) place(path string) string {
	job, name := kindOf(path)
	for _, now := range e.newest() {
		if j, n := kindOf(now); j == job && n == name {
			return now
		}
	}
	return path
}

// try damages a file in a way, and looks what comes of it.
func (e *eachFile) try(path, way string) {
	e.t.Helper()
	what := path + " " + way
	before, begins := e.now, map[string]int{}
	for job := range before {
		begins[job] = e.begins(job)
	}
	e.halt()
	was, _ := os.ReadFile(filepath.Join(e.dir, path)) // damage says if it is not there
	document := durable.Sealed(filepath.Join(e.dir, path))
	jobs, changed, ok := e.damage(path, way)
	if !ok {
		e.begin()
		return
	}
	e.begin()
	if document && changed && mustReport(path, way) {
		e.soon(what+": the machine has the condition", func() bool { return hasDamage(e.loop.Report()) })
	}
	e.assign()
	e.settled(what)
	if job, _ := kindOf(path); document && job != "done" { // which needs none any more
		e.soon(what+": it is written anew", func() bool { return durable.Sealed(filepath.Join(e.dir, path)) || e.gone(path) })
	}
	e.check(what, jobs, before, begins)
	if job, _ := kindOf(path); job == "done" { // or the next damage would be the second of two
		if err := os.WriteFile(filepath.Join(e.dir, path), was, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
			e.t.Error(err)
		}
	}
}

// mustReport reports whether a damage of a document is to be reported. What need not be there is
// not missed, and an older copy of the same document is one: but of what is kept twice the
// other copy shows it.
func mustReport(path, way string) bool {
	job, name := kindOf(path)
	switch way {
	case "deleted":
		return !slices.Contains([]string{"health.json", "end.json", "stop.json"}, name) && (job != "done" || name == "assignment.json")
	case "older":
		return name == "view.json" || name == "users.json"
	}
	return true
}

// soon is eventually for what the others need not wait for.
func (e *eachFile) soon(what string, ok func() bool) {
	e.t.Helper()
	for range 500 {
		if ok() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	e.t.Errorf("not soon: %s", what)
}

// gone reports whether a file need not be there any more: its task has begun again.
func (e *eachFile) gone(path string) bool {
	return !slices.Contains(e.newest(), path)
}
