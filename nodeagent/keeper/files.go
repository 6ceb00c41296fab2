package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/musterhq/muster/nodeagent/durable"
	"github.com/musterhq/muster/nodeagent/logfile"
	"github.com/musterhq/muster/schema/atomicfile"
)

// The files of an incarnation's directory.
const (
	SpecFile   = "spec.json"  // Spec, written by the agent before the keeper starts
	StateFile  = "state.json" // State, written by the keeper when the task runs
	ExitFile   = "exit.json"  // Exit, written under the lock, once
	LockFile   = "lock"
	StdoutFile = "stdout" // a log, see package logfile
	StderrFile = "stderr" // likewise
	// panicFile is the keeper's own standard error: empty unless it crashed.
	panicFile = "keeper.log"
)

// panicFlags open panicFile.
const panicFlags = os.O_WRONLY | os.O_CREATE | os.O_APPEND

// Spec is what a keeper shall run.
type Spec struct {
	// Boot is the kernel's boot id when the Spec was written.
	Boot string `json:"boot"`
	// Command[0] is a path, or is looked up in the PATH of Env.
	// Of a task with Sandbox.Root, paths here and in Dir are below that root.
	Command []string `json:"command"`
	Env     []string `json:"env"` // NAME=value
	Dir     string   `json:"dir"` // working directory
	// User runs the task; nil is the keeper's own user.
	User *User `json:"user,omitempty"`
	// Cgroups are the directories, one in each hierarchy, that hold the task
	// and nothing else. They are made by the agent and removed by the keeper.
	Cgroups []string `json:"cgroups,omitempty"`
	// WholeCores says that the cores in its cgroup's cpuset are its own.
	WholeCores bool `json:"wholeCores,omitempty"`
	// Probe asks for everything but the command: the main process ends with
	// status 0 in its place.
	Probe bool `json:"probe,omitempty"`
	// Sandbox is what the task has instead of the machine's; nil: nothing.
	Sandbox *Sandbox `json:"sandbox,omitempty"`
	// Container is what the task has in place of a Sandbox; nil: nothing.
	Container *Container `json:"container,omitempty"`
	// Filter is a seccomp program in the kernel's form, installed as the last
	// step before the command; empty: none.
	Filter []byte `json:"filter,omitempty"`
	// Capabilities, as bits, are kept by the main process, whoever its user is, and by commands
	// beside it; in a container those of Container come on top for user 0.
	Capabilities uint64 `json:"capabilities,omitempty"`
	// Scoped keeps the task from abstract unix sockets that are not its own, see CanScope.
	Scoped bool `json:"scoped,omitempty"`
	// Rlimits are set before the command; nil: those of the keeper.
	Rlimits *Rlimits `json:"rlimits,omitempty"`
	// Note is what the agent has to say of how the task is held; the keeper does not
	// read it.
	Note string `json:"note,omitempty"`
	// Step says which of what runs before the task this is, 0 the task itself, and Attempt how
	// often that has begun; the keeper does not read them.
	Step    int `json:"step,omitempty"`
	Attempt int `json:"attempt,omitempty"`
	// StopSignal is what the task's process group gets when the keeper gets SIGTERM; 0 is
	// SIGTERM.
	StopSignal int `json:"stopSignal,omitempty"`
	// Given is what the task was given that can change while it runs, as the agent keeps
	// it; the keeper does not read it.
	Given json.RawMessage `json:"given,omitempty"`
	// Secrets is a directory in memory, which the keeper removes when the task has ended,
	// and SecretEnv one in it: the name of each file there is that of a variable of the
	// task's environment beside Env, and what is in it the value. "" without.
	Secrets   string `json:"secrets,omitempty"`
	SecretEnv string `json:"secretEnv,omitempty"`
	// OOMScoreAdj is the task's oom_score_adj, 0 to 1000.
	OOMScoreAdj int `json:"oomScoreAdj,omitempty"`
	// Logs bound what is kept of each output; zero is logfile.DefaultLimits.
	Logs logfile.Limits `json:"logs,omitzero"`
	// Mark is an entry of Env that only this task's processes have. It finds
	// them where the keeper was killed and there is no cgroup.
	Mark string `json:"mark,omitempty"`
	// Old says that its keeper is of an earlier release: what that writes has no
	// checksum, and it repairs nothing.
	Old bool `json:"old,omitempty"`
}

// User is a numeric user and group.
type User struct {
	UID int `json:"uid"`
	GID int `json:"gid"`
}

// Sandbox are namespaces of the task's own: pid, mount, ipc and uts always.
type Sandbox struct {
	// Network adds a network namespace, with nothing in it but lo, which is up.
	Network bool `json:"network,omitempty"`
	// JoinNetwork is the path of a file that holds a network namespace, which the task joins in
	// place of one of its own or the machine's; "" for these. Root is needed for it.
	JoinNetwork string `json:"joinNetwork,omitempty"`
	// UserNamespace adds a user namespace in which there is the task's user
	// and no other. Without root, the others can be had in one only.
	UserNamespace bool `json:"userNamespace,omitempty"`
	// IPC is the path of a file that holds an ipc namespace (bind-mounted from
	// /proc/PID/ns/ipc), which the task joins in place of one of its own; "" for
	// one of its own. Root is needed for it.
	IPC string `json:"ipc,omitempty"`
	// ReadOnly makes all that the machine has mounted read-only, but not Mounts: what
	// anybody may write to there would be counted for nobody.
	ReadOnly bool `json:"readOnly,omitempty"`
	// Mounts are done in this order, in the mount namespace. All sources are
	// looked up before the first.
	Mounts []Mount `json:"mounts,omitempty"`
	// Root makes the targets of Mounts those of a new root directory, of which
	// / is the first. It is any existing directory of the machine: the new one
	// is put together on top of it. "" leaves the machine's root directory.
	Root string `json:"root,omitempty"`
}

// Mount is one step in the making of what the task sees. A target that is not
// there is made, which is allowed only in what an earlier step has mounted.
type Mount struct {
	Kind   MountKind `json:"kind"`
	Source string    `json:"source,omitempty"` // for Bind: a file or directory, with all that is mounted below it
	Target string    `json:"target"`           // absolute
	// Data are options for Tmpfs and Devpts, the text of the link for Link.
	Data string      `json:"data,omitempty"`
	Node *DeviceNode `json:"node,omitempty"` // for Node
	// Nodes makes device files in a Tmpfs work.
	Nodes bool `json:"nodes,omitempty"`
	// ReadOnly holds from the end of the last step on.
	ReadOnly bool `json:"readOnly,omitempty"`
	// Plain makes device files and setuid programs of a Bind plain files, and keeps to
	// itself what is mounted there later, on either side.
	Plain bool `json:"plain,omitempty"`
}

// MountKind is what is mounted.
type MountKind string

// The kinds of mount.
const (
	Bind  MountKind = "bind"
	Tmpfs MountKind = "tmpfs"
	Proc  MountKind = "proc" // of the pid namespace
	Link  MountKind = "link" // no mount, but a symbolic link
	// Node is no mount either, but a device file, which is of use only without a
	// user namespace.
	Node   MountKind = "node"
	Devpts MountKind = "devpts" // terminals of its own
	Mqueue MountKind = "mqueue" // the message queues of the ipc namespace
)

// DeviceNode is a device file with mode 0600.
type DeviceNode struct {
	Mode   uint32 `json:"mode"` // unix.S_IFCHR or unix.S_IFBLK
	Device uint64 `json:"device"`
	Owner  *User  `json:"owner,omitempty"` // nil is the keeper's user
}

// State says which processes hold the incarnation. A pid alone is no identity:
// it is one only with the start time and the boot id.
type State struct {
	Boot      string    `json:"boot"`
	Keeper    Identity  `json:"keeper"`
	Task      Identity  `json:"task"`      // the main process, leader of its session
	StartedAt time.Time `json:"startedAt"` // just before its command runs
}

// Identity identifies a process within one boot.
type Identity struct {
	PID int `json:"pid"`
	// Start is the time of its start in clock ticks since boot, field 22 of
	// /proc/PID/stat.
	Start uint64 `json:"start"`
}

// Exit is the end of the incarnation: nothing of it is left.
type Exit struct {
	// Code is the exit status of the main process, -1 when a signal ended it
	// or its status is unknown.
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"` // such as SIGKILL
	// OOM says that the kernel killed it when it was out of memory.
	OOM bool `json:"oom,omitempty"`
	// Term and Kill say that the keeper had passed on SIGTERM, or had killed
	// all of it, because the agent asked for it.
	Term bool `json:"term,omitempty"`
	Kill bool `json:"kill,omitempty"`
	// Never says that nothing of it ever ran.
	Never bool `json:"never,omitempty"`
	// Unseen says that its keeper was killed: how the task ended, or would have, is not
	// known, and nothing shows that it did anything wrong.
	Unseen bool      `json:"unseen,omitempty"`
	At     time.Time `json:"at"`
	// Message says what is known beyond that.
	Message string `json:"message,omitempty"`
}

// answer is what a keeper writes to its ready pipe, once.
type answer struct {
	State *State `json:"state,omitempty"`
	Error string `json:"error,omitempty"`
	// Command says that Error is the command's fault, not ours, and Container that it is
	// what the OCI runtime has to say of the container.
	Command   bool `json:"command,omitempty"`
	Container bool `json:"container,omitempty"`
}

// id names a document of the incarnation in dir: with its task, generation and
// number, so that none counts in another's place.
func id(dir, name string) string {
	const parts = 6 // cell, user, job, index, generation, incarnation
	path := strings.Split(filepath.Clean(dir), string(filepath.Separator))
	return strings.Join(append(path[max(0, len(path)-parts):len(path):len(path)], name), "/")
}

// read reads the document name of dir into v; false if there is none. The error is a
// *durable.Damage if it is not what was written.
func read(docs durable.Documents, dir, name string, v any) (bool, error) {
	err := docs.Read(filepath.Join(dir, name), id(dir, name), v)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// damaged returns err if it is a *durable.Damage, nil if it is not.
func damaged(err error) *durable.Damage {
	var d *durable.Damage
	errors.As(err, &d)
	return d
}

// writeEnd writes the end of dir down, durably and whole: after a crash it is there
// with all that it says, or not at all.
func writeEnd(dir string, e Exit) error {
	return durable.Documents{}.Write(filepath.Join(dir, ExitFile), id(dir, ExitFile), e)
}

// writeNow makes v the document name of dir, whole for every reader while the
// machine is up. It does not wait for the disk: that is for what says nothing any
// more once the machine went down, and each start would wait twice.
func writeNow(dir, name string, v any) error {
	b, err := durable.Seal(id(dir, name), v)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	temp := filepath.Join(dir, name+".new")
	if err := atomicfile.Aside(temp); err != nil {
		return err
	}
	if err := os.WriteFile(temp, b, 0o600); err != nil {
		return err
	}
	return atomicfile.Replace(temp, filepath.Join(dir, name))
}
