package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/schema"
)

// An incarnation of an alloc is a cgroup with the alloc's limits, below which
// the tasks inside have theirs, and beside it, in the generation's directory,
// the directory that they share. It has no keeper, since nothing of it can die:
// what holds it is in the kernel and on disk.

// allocFile is in an alloc's incarnation directory, and in no other.
const allocFile = "alloc.json"

// allocState is what is known of an alloc's incarnation.
type allocState struct {
	Boot    string   `json:"boot"`
	Cgroups []string `json:"cgroups,omitempty"`
	Mounts  []string `json:"mounts,omitempty"`
	// StartedAt is zero while Cgroups and Mounts are being made.
	StartedAt time.Time `json:"startedAt,omitzero"`
	// Ended is set when they are gone.
	Ended *schema.Exit `json:"ended,omitempty"`
}

// alloc is an incarnation of an alloc that this agent holds.
type alloc struct {
	runtime *Runtime
	dir     string

	mu    sync.Mutex // guards state, and lets one end it at a time
	state allocState
}

// startAlloc makes what holds the tasks of the alloc of a. After an error
// nothing of it is left but the directory, which says so.
func (r *Runtime) startAlloc(dir string, a *schema.Assignment) (*Process, error) {
	if err := os.Mkdir(dir, 0o711); err != nil {
		return nil, err
	}
	name := host.AllocGroup(a.Task, a.Generation)
	h := &alloc{runtime: r, dir: dir, state: allocState{Boot: r.host.Boot(), Cgroups: r.host.Cgroups().Dirs(name)}}
	if r.sees.sharesIPC() {
		h.state.Mounts = allocMounts(dir)
	}
	if err := h.save(); err != nil { // first, so that it is known what to look for
		return nil, err
	}
	if err := h.make(name, a); err != nil {
		return nil, errors.Join(err, h.abandon())
	}
	h.state.StartedAt = time.Now()
	if err := h.save(); err != nil {
		return nil, errors.Join(err, h.abandon())
	}
	return r.holdAlloc(h)
}

// abandon ends an alloc that was not made as a whole.
func (h *alloc) abandon() error {
	_, err := h.end(-1, "it could not be made")
	return err
}

// make makes the shared directory and the cgroups.
func (h *alloc) make(name string, a *schema.Assignment) error {
	r := h.runtime
	user, err := r.user(a.Task.User)
	if err != nil {
		return err
	}
	if err := host.Own(filepath.Join(filepath.Dir(h.dir), host.SharedDir), user); err != nil {
		return fmt.Errorf("shared directory: %w", err)
	}
	if len(h.state.Mounts) > 0 {
		if err := shareIPC(h.state.Mounts[0], h.state.Mounts[1]); err != nil {
			return fmt.Errorf("shared ipc: %w", err)
		}
	}
	if err := r.host.Cgroups().MakeAlloc(name, a); err != nil {
		return err
	}
	return r.host.Cgroups().Own(name, user)
}

// allocMounts returns where what the tasks of an alloc share is mounted; dir is that of
// its incarnation.
func allocMounts(dir string) []string {
	shared := host.IPCIn(filepath.Dir(dir))
	return []string{shared.SHM, shared.Namespace}
}

// adoptAlloc finds the alloc that was started in dir; false if that is of a
// task.
func (r *Runtime) adoptAlloc(dir string) (*Process, bool, error) {
	h := &alloc{runtime: r, dir: dir}
	err := r.host.Documents().Read(filepath.Join(dir, allocFile), h.id(), &h.state)
	if errors.Is(err, fs.ErrNotExist) {
		if err = r.missingAlloc(dir); err == nil {
			return nil, false, nil
		}
	}
	why := ""
	var damage *durable.Damage
	switch {
	case errors.As(err, &damage) && isPast(dir):
		number, _ := strconv.Atoi(filepath.Base(dir))
		h.state = allocState{Boot: r.host.Boot(), StartedAt: time.Now(), Ended: &schema.Exit{Incarnation: number, Code: -1, At: time.Now(), Message: damage.Error()}}
		if err := h.save(); err != nil {
			return nil, true, err
		}
	case damage != nil:
		if h.state = r.lostAlloc(dir); r.wholeAlloc(dir, &h.state) {
			if err := h.save(); err != nil {
				return nil, true, err
			}
			damage = nil
			break
		}
		why = damage.Error()
	case err != nil:
		return nil, true, fmt.Errorf("%s: %w", dir, err)
	case h.state.Ended != nil:
	case h.state.Boot != r.host.Boot():
		why = "the machine was restarted"
	case h.state.StartedAt.IsZero():
		why = "it was never there as a whole"
	case missing(h.state.Cgroups) != "":
		why = fmt.Sprintf("its cgroup %s is gone", missing(h.state.Cgroups))
	case len(h.state.Mounts) > 0 && !isNamespace(h.state.Mounts[1]):
		why = fmt.Sprintf("its ipc namespace %s is gone", h.state.Mounts[1])
	}
	if why != "" {
		if _, err := h.end(-1, why); err != nil {
			return nil, true, err
		}
	} else if r.host.Documents().Old {
		if err := h.save(); err != nil {
			return nil, true, err
		}
	}
	p, err := r.holdAlloc(h)
	if p != nil {
		p.is.Unseen = damage != nil
	}
	return p, true, err
}

// missingAlloc errs with a *durable.Damage if dir, which has no allocFile, is that of an
// alloc all the same: then its cgroups are there, and nothing of a task.
func (r *Runtime) missingAlloc(dir string) error {
	if _, err := os.Lstat(filepath.Join(dir, keeper.SpecFile)); err == nil || len(r.lostAlloc(dir).Cgroups) == 0 {
		return nil
	}
	damage := &durable.Damage{File: filepath.Join(dir, allocFile), Why: "it is missing"}
	if report := r.host.Documents().Report; report != nil {
		report(*damage)
	}
	return damage
}

// wholeAlloc reports whether all is there that an alloc has, whose state was lost: then
// it goes on, for the state says no more than that.
func (r *Runtime) wholeAlloc(dir string, state *allocState) bool {
	all := r.host.Cgroups().Dirs(host.AllocGroupIn(filepath.Dir(dir)))
	if !r.sees.sharesIPC() {
		state.Mounts = nil
	}
	return len(all) > 0 && len(state.Cgroups) == len(all) && (len(state.Mounts) == 0 || isNamespace(state.Mounts[1]))
}

// missing returns the first of dirs that is not there, "" if all are.
func missing(dirs []string) string {
	for _, d := range dirs {
		if _, err := os.Stat(d); errors.Is(err, fs.ErrNotExist) {
			return d
		}
	}
	return ""
}

// holdAlloc makes a Process of h.
func (r *Runtime) holdAlloc(h *alloc) (*Process, error) {
	p := &Process{alloc: h, ended: make(chan struct{}), gone: make(chan struct{})}
	p.is = nodeagent.Process{Boot: h.state.Boot, StartedAt: h.state.StartedAt, Note: r.allocNote()}
	if e := h.state.Ended; e != nil {
		p.is.Exit = e
		if h.state.StartedAt.IsZero() {
			p.is.Boot = "" // it belongs to none: an end without blame
		}
		close(p.ended)
		return p, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, ErrClosed
	}
	r.live[p] = true
	r.host.Cgroups().Hold(h.state.Cgroups)
	return p, nil
}

// allocNote says in words what an alloc is without here.
func (r *Runtime) allocNote() string {
	switch {
	case !r.host.Cgroups().Found():
		return "without cgroups and shared IPC: its tasks share a directory, and no limit"
	case !r.sees.sharesIPC():
		return "without shared IPC"
	case !r.host.Cgroups().Has(host.Memory):
		return "without a memory limit"
	}
	return ""
}

// endAlloc removes what was made for the alloc of p: its agent has seen to it
// that nothing runs inside, and what does all the same is killed.
func (p *Process) endAlloc() error {
	exit, err := p.alloc.end(0, "its agent ended it")
	if err != nil {
		return fmt.Errorf("end the alloc in %s: %w", p.alloc.dir, err)
	}
	r := p.alloc.runtime
	r.mu.Lock()
	live := r.live[p]
	delete(r.live, p)
	r.mu.Unlock()
	if live {
		p.mu.Lock()
		p.is.Exit = exit
		p.mu.Unlock()
		close(p.ended)
	}
	return nil
}

// end removes the cgroups, after a kill of all that is in them, and takes down
// why. It returns the end that is known then.
func (h *alloc) end(code int, why string) (*schema.Exit, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state.Ended != nil {
		return h.state.Ended, nil
	}
	if err := keeper.Abandon(h.dir, &keeper.Spec{Boot: h.state.Boot, Cgroups: h.state.Cgroups}); err != nil {
		return nil, err
	}
	if err := unmount(h.state.Mounts); err != nil {
		return nil, err
	}
	number, _ := strconv.Atoi(filepath.Base(h.dir))
	h.state.Ended = &schema.Exit{Incarnation: number, Code: code, At: time.Now(), Message: why}
	if err := h.save(); err != nil {
		h.state.Ended = nil
		return nil, err
	}
	return h.state.Ended, nil
}

// lostAlloc returns what can be known of an alloc's incarnation whose state is
// damaged: as if all that it may have had were there.
func (r *Runtime) lostAlloc(dir string) allocState {
	return allocState{
		Boot: r.host.Boot(), StartedAt: time.Now(), Cgroups: r.host.Cgroups().Find(host.AllocGroupIn(filepath.Dir(dir))),
		Mounts: allocMounts(dir),
	}
}

func (h *alloc) save() error {
	return h.runtime.host.Documents().Write(filepath.Join(h.dir, allocFile), h.id(), h.state)
}

// verify writes the state of a running alloc again if it is damaged or lost.
func (h *alloc) verify() {
	h.mu.Lock()
	defer h.mu.Unlock()
	var state allocState
	docs, name := h.runtime.host.Documents(), filepath.Join(h.dir, allocFile)
	docs.Report = nil
	err := docs.Read(name, h.id(), &state)
	var damage *durable.Damage
	switch {
	case errors.As(err, &damage):
	case errors.Is(err, fs.ErrNotExist):
		damage = &durable.Damage{File: name, Why: "it was missing"}
	default:
		return
	}
	if h.state.Ended != nil {
		return
	}
	if err := errors.Join(os.MkdirAll(h.dir, 0o711), h.save()); err == nil && h.runtime.host.Documents().Report != nil {
		damage.Repaired = true
		h.runtime.host.Documents().Report(*damage)
	}
}

// id names the document of h by its generation and number.
func (h *alloc) id() string {
	return strings.Join([]string{host.AllocGroupIn(filepath.Dir(h.dir)), filepath.Base(h.dir), allocFile}, "/")
}
