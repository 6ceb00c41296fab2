package host

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/schema"
)

// Config is what a Host needs. Dir must be set.
type Config struct {
	// Dir is the agent's state directory. It must be there, and what is above
	// it must let other users pass (mode 0711).
	Dir string
	// CgroupParent is the cgroup below which tasks are put, as a path in each
	// hierarchy, such as /muster; it is made if it is not there, and stays.
	// "" is the agent's own.
	CgroupParent string
	// ClosedPorts are ports, at any address, to which tasks that require isolation
	// cannot connect: those of the master.
	ClosedPorts []int
	// Users are the numeric users that owners' tasks run as; zero is
	// DefaultUsers.
	Users UserRange
	// Devices are, by kind, the files of what tasks are given of that kind.
	Devices map[string]DeviceFiles
	// CDIDirs are directories with CDI files about devices; none: what they say is left out.
	CDIDirs []string
	// Damaged, if set, is called with each file of Dir that was damaged, from any
	// goroutine.
	Damaged func(durable.Damage)
	// Discard, if set, is called with what a task has left in the place of a file of
	// its job: it takes the tree away, soon.
	Discard func(path string) error
}

// Host is this machine, for the tasks of one agent. See the package's comment.
type Host struct {
	cfg        Config
	boot       string
	documents  durable.Documents
	users      *users // nil: tasks run as the agent's own user
	cgroups    *Cgroups
	quotas     *quotas // nil: no project quotas
	capacity   schema.Resources
	attributes map[string]string
	lacks      Lacks
	room       room
	processes  processTables
	sockets    socketBuffers
}

// New finds out what this machine has. It makes the cgroup that holds the tasks',
// which Close removes.
func New(cfg Config) (*Host, error) {
	if cfg.Users == (UserRange{}) {
		cfg.Users = DefaultUsers
	}
	var err error
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	h := &Host{cfg: cfg}
	if h.boot, err = readBoot(); err != nil {
		return nil, fmt.Errorf("boot id: %w", err)
	}
	h.documents = durable.Documents{Old: !durable.Current(cfg.Dir), Report: cfg.Damaged}
	if h.users, err = h.findUsers(); err != nil {
		return nil, err
	}
	if h.quotas, err = findQuotas(cfg.Dir); err != nil {
		return nil, fmt.Errorf("find out whether there are quotas: %w", err)
	}
	h.cgroups = findCgroups(cfg.Dir, cfg.CgroupParent, cfg.ClosedPorts, &h.lacks) // after what is refused: it makes some
	if h.users != nil {
		h.users.learn(h.cgroups.owners())
	}
	if h.capacity, err = capacity(cfg.Dir, h.cgroups.can.memory); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	h.room.stateDir, h.room.total, h.room.memory = cfg.Dir, h.capacity.RAMBytes, h.cgroups.around()
	h.attributes = h.describe()
	return h, nil
}

// readBoot returns the boot id: another one after each boot of the machine.
func readBoot() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

// findUsers returns nil, with a note, where tasks cannot have users of their own.
func (h *Host) findUsers() (*users, error) {
	if missing := cannotSwitch(h.cfg.Users); missing != "" {
		h.lacks.Task("own users", fmt.Sprintf("%s: tasks run as user %d, and can harm each other and the agent", missing, os.Geteuid()))
		return nil, nil
	}
	if closed := ClosedAbove(h.cfg.Dir); closed != "" {
		h.lacks.Machine(fmt.Sprintf("%s lets no other user pass: tasks reach their own directory by relative paths only (chmod o+x %s)", closed, closed))
	}
	return openUsers(h.cfg.Dir, h.cfg.Users, h.documents)
}

// ClosedAbove returns the first directory from the root to dir, dir included,
// that lets other users not pass.
func ClosedAbove(dir string) string {
	path := "/"
	for part := range strings.SplitSeq(strings.Trim(dir, "/"), "/") {
		path = filepath.Join(path, part)
		if s, err := os.Stat(path); err == nil && s.Mode()&0o001 == 0 {
			return path
		}
	}
	return ""
}

// describe returns the attributes that say how tasks are kept apart.
func (h *Host) describe() map[string]string {
	a := map[string]string{
		"disk.quota":        strconv.FormatBool(h.quotas != nil),
		"isolation.users":   strconv.FormatBool(h.users != nil),
		"isolation.cgroups": h.cgroups.can.kind,
		"isolation.io":      strconv.FormatBool(h.cgroups.boundsDisk()),
	}
	for _, c := range []string{cpuController, CPUSet, Memory, Processes, devicesController, portRules} {
		a["isolation."+c] = strconv.FormatBool(h.cgroups.Has(c))
	}
	return a
}

// Dir returns the agent's state directory, an absolute path.
func (h *Host) Dir() string { return h.cfg.Dir }

// Boot returns the machine's boot id.
func (h *Host) Boot() string { return h.boot }

// Documents returns how the files below Dir are read and written.
func (h *Host) Documents() durable.Documents { return h.documents }

// Cgroups returns the cgroups of tasks.
func (h *Host) Cgroups() *Cgroups { return h.cgroups }

// Capacity returns what the machine has, as of New.
func (h *Host) Capacity() schema.Resources { return h.capacity }

// Attributes returns how the machine keeps tasks apart, however they are run:
// isolation.* and disk.quota.
func (h *Host) Attributes() map[string]string { return maps.Clone(h.attributes) }

// Lacks returns what the machine has not.
func (h *Host) Lacks() *Lacks { return h.lacks.And(&Lacks{}) }

// Verify has what is damaged or lost of the Host's own files written again.
func (h *Host) Verify() {
	if h.users != nil {
		h.users.verify()
	}
}

// User returns the user that an owner's tasks run as; nil is the agent's own. That of
// a new owner is on disk when it returns.
func (h *Host) User(owner string) (*User, error) {
	if h.users == nil {
		return nil, nil
	}
	id, err := h.users.id(owner)
	if err != nil {
		return nil, err
	}
	return &User{UID: id, GID: id}, nil
}

// FirstID returns the machine's number of the first of the users and groups that the
// containers of an owner have beside the owner's, which is given.
func (h *Host) FirstID(owner int) int {
	return h.cfg.Users.firstID(owner)
}

// Devices finds what there is of the devices that a task was given. CDI files are read here alone.
func (h *Host) Devices(uses []schema.DeviceUse) GivenDevices {
	var g GivenDevices
	g.Files, g.Note = findDevices(h.cfg.Devices, uses)
	if g.declared, g.failed = declaredOf(&h.cfg, uses); g.failed != nil {
		g.Note = strings.TrimPrefix(g.Note+"; "+g.failed.Error(), "; ")
	}
	g.Files = append(g.Files, furtherDevices(g.declared, g.Files)...)
	return g
}

// SeparateUsers reports whether tasks have users of their own.
func (h *Host) SeparateUsers() bool { return h.users != nil }

// Close removes what was made to hold tasks if there are none.
func (h *Host) Close() error { return h.cgroups.close() }
