package runtime

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/schema"
)

// Config is what a Runtime needs. Dir, Keeper and Log must be set.
type Config struct {
	// Dir is the agent's state directory. It must be there, and what is above
	// it must let other users pass (mode 0711).
	Dir string
	// Keeper is the path of muster-keeper.
	Keeper string
	// CgroupParent is the cgroup below which tasks are put, as a path in each
	// hierarchy, such as /muster; it is made if it is not there, and stays.
	// "" is the agent's own.
	CgroupParent string
	// Hide are directories and sockets, beside Dir, that tasks shall not see:
	// what the agent talks to the master through.
	Hide []string
	// Writable are directories of the machine to which tasks may write, as far as
	// their users may; all others are read-only for them, where there are mount
	// namespaces.
	Writable []string
	// ClosedPorts are ports, at any address, to which tasks that require isolation
	// cannot connect: those of the master.
	ClosedPorts []int
	// Users are the numeric users that owners' tasks run as; zero is
	// DefaultUsers.
	Users UserRange
	// Devices are, by kind, the files of what tasks are given of that kind.
	Devices map[string]DeviceFiles
	Log     *slog.Logger
	// Damaged, if set, is called with each file of Dir that was damaged, from any
	// goroutine.
	Damaged func(durable.Damage)
	// Discard, if set, is called with what a task has left in the place of a file of
	// its job: it takes the tree away, soon.
	Discard func(path string) error
}

// Runtime runs tasks. See the package's comment.
type Runtime struct {
	cfg        Config
	boot       string
	documents  durable.Documents
	hidden     []string // real paths, none below another
	writable   []string // likewise, but for the latter
	isolation  isolation
	rlimits    rlimits
	users      *users  // nil: tasks run as the agent's own user
	groups     groups  // nil: no cgroups
	quotas     *quotas // nil: no project quotas
	disk       string  // the numbers of the state directory's disk, "" for none
	cores      cores
	can        support
	capacity   schema.Resources
	attributes map[string]string
	notes      []string
	note       string        // on each task
	done       chan struct{} // closed by Close
	checker    *keeper.Checker
	probes     string // where New tries what there is
	untried    error  // why it could not

	mu       sync.Mutex // guards what follows
	closed   bool
	live     map[*Process]bool
	parents  map[string]bool // directories that have held tasks' cgroups
	watchers sync.WaitGroup

	measuring sync.Mutex // guards what follows
	room      room
	table     processTable
	tableAt   time.Time
}

// New finds out what this machine can do.
func New(cfg Config) (*Runtime, error) {
	if cfg.Users == (UserRange{}) {
		cfg.Users = DefaultUsers
	}
	var err error
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	if cfg.Keeper, err = filepath.Abs(cfg.Keeper); err != nil {
		return nil, fmt.Errorf("keeper: %w", err)
	}
	if s, err := os.Stat(cfg.Keeper); err != nil {
		return nil, fmt.Errorf("keeper: %w", err)
	} else if s.IsDir() || s.Mode()&0o111 == 0 {
		return nil, fmt.Errorf("keeper %s: not executable", cfg.Keeper)
	}
	r := &Runtime{cfg: cfg, live: map[*Process]bool{}, parents: map[string]bool{}, done: make(chan struct{})}
	r.checker = keeper.NewChecker(cfg.Keeper, cfg.Dir)
	if r.boot, err = keeper.Boot(); err != nil {
		return nil, fmt.Errorf("boot id: %w", err)
	}
	r.documents = durable.Documents{Old: !durable.Current(cfg.Dir), Report: cfg.Damaged}
	if r.users, err = r.findUsers(); err != nil {
		return nil, err
	}
	if r.hidden, err = findHidden(append([]string{cfg.Dir}, cfg.Hide...)); err != nil {
		return nil, err
	}
	if r.writable, err = r.findWritable(cfg.Writable); err != nil {
		return nil, err
	}
	r.findGroups() // after what is refused: it makes cgroups
	r.findPortRules()
	if r.users != nil {
		r.users.learn(r.runningOwners())
	}
	r.cores.uses = map[string]nodeagent.CoreUse{}
	if r.can.has[cpusetController] {
		r.cores.groups = r.groups
	}
	if err := r.findIsolation(); err != nil {
		return nil, err
	}
	r.disk = diskOf(cfg.Dir)
	if err := r.findRlimits(); err != nil {
		return nil, err
	}
	if r.quotas, err = findQuotas(cfg.Dir); err != nil {
		return nil, fmt.Errorf("find out whether there are quotas: %w", err)
	}
	if r.capacity, err = capacity(cfg.Dir, r.can.memory); err != nil {
		return nil, err
	}
	r.room = room{stateDir: cfg.Dir, total: r.capacity.RAMBytes}
	if r.groups != nil {
		r.room.memory = r.groups.around()
	}
	r.attributes = r.describe()
	return r, nil
}

// tableFor is how long a process table is good for: tasks are measured one after
// the other, and each asks for it.
const tableFor = time.Second

// processes returns the process table as of a moment ago.
func (r *Runtime) processes() processTable {
	r.measuring.Lock()
	defer r.measuring.Unlock()
	if r.table == nil || time.Since(r.tableAt) > tableFor {
		r.table, r.tableAt = readProcesses(), time.Now()
	}
	return r.table
}

// Disk measures directories and deleted files of a task, see Measure, and asks the
// kernel where that counts: the larger is true.
func (r *Runtime) Disk(dirs []string, of nodeagent.Processes, limit int64) (nodeagent.DiskUse, error) {
	use, err := Measure(dirs, of, limit)
	var bytes, inodes int64
	for _, dir := range written(dirs) {
		b, i := r.quotas.use(dir)
		bytes, inodes = bytes+b, inodes+i
	}
	use.Bytes, use.Inodes = max(use.Bytes, bytes), max(use.Inodes, inodes)
	return use, err
}

// Machine measures the machine as a whole, without its tasks. Rates are over the
// time since the last call.
func (r *Runtime) Machine() (schema.MachineUsage, error) {
	r.measuring.Lock()
	defer r.measuring.Unlock()
	return r.room.measure(time.Now())
}

// Verify has what is damaged or lost of the Runtime's own files written anew. It may
// be called from any goroutine.
func (r *Runtime) Verify() {
	if r.users != nil {
		r.users.verify()
	}
}

// findUsers returns nil, with a note, where tasks cannot have users of their own.
func (r *Runtime) findUsers() (*users, error) {
	if missing := cannotSwitch(r.cfg.Users); missing != "" {
		r.lack("own users", fmt.Sprintf("%s: tasks run as user %d, and can harm each other and the agent", missing, os.Geteuid()))
		return nil, nil
	}
	if closed := closedAbove(r.cfg.Dir); closed != "" {
		r.notes = append(r.notes, fmt.Sprintf("%s lets no other user pass: tasks reach their own directory by relative paths only (chmod o+x %s)", closed, closed))
	}
	return openUsers(r.cfg.Dir, r.cfg.Users, r.documents)
}

// lack notes what the machine cannot do for a task.
func (r *Runtime) lack(what, note string) {
	r.notes = append(r.notes, note)
	if r.note == "" {
		r.note = "without " + what
	} else {
		r.note += ", " + what
	}
}

// closedAbove returns the first directory from the root to dir, dir included,
// that lets other users not pass.
func closedAbove(dir string) string {
	path := "/"
	for part := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
		path = filepath.Join(path, part)
		if s, err := os.Stat(path); err == nil && s.Mode()&0o001 == 0 {
			return path
		}
	}
	return ""
}

// Boot returns the machine's boot id.
func (r *Runtime) Boot() string { return r.boot }

// Capacity returns what the machine has, as of New.
func (r *Runtime) Capacity() schema.Resources { return r.capacity }

// Attributes returns how the machine keeps tasks apart: isolation.*.
func (r *Runtime) Attributes() map[string]string { return maps.Clone(r.attributes) }

// Notes says in words what the machine cannot do.
func (r *Runtime) Notes() []string { return slices.Clone(r.notes) }

// Close lets go of all tasks, which run on, and removes what was made to hold
// them if there are none. It ends the calls of Wait.
func (r *Runtime) Close() error {
	r.mu.Lock()
	if !r.closed {
		close(r.done)
	}
	r.closed = true
	var errs []error
	for p := range r.live {
		if p.alloc != nil {
			delete(r.live, p)
			close(p.gone)
			continue
		}
		errs = append(errs, p.handle.Close())
	}
	r.mu.Unlock()
	r.checker.Close()
	r.watchers.Wait()
	// Those of an agent before this one may be elsewhere.
	errs = append(errs, removeGroups(slices.Collect(maps.Keys(r.parents))))
	if r.groups != nil {
		errs = append(errs, r.groups.close())
	}
	return errors.Join(errs...)
}
