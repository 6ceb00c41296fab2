package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// The files of an incarnation's directory.
const (
	SpecFile   = "spec.json"  // Spec, written by the agent before the keeper starts
	StateFile  = "state.json" // State, written by the keeper when the task runs
	ExitFile   = "exit.json"  // Exit, written under the lock, once
	LockFile   = "lock"
	StdoutFile = "stdout"
	StderrFile = "stderr"
	// panicFile is the keeper's own standard error: empty unless it crashed.
	panicFile = "keeper.log"
)

// Spec is what a keeper shall run.
type Spec struct {
	// Boot is the kernel's boot id when the Spec was written.
	Boot string `json:"boot"`
	// Command[0] is a path, or is looked up in the PATH of Env.
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
	// OOMScoreAdj is the task's oom_score_adj, 0 to 1000.
	OOMScoreAdj int `json:"oomScoreAdj,omitempty"`
	// Mark is an entry of Env that only this task's processes have. It finds
	// them where the keeper was killed and there is no cgroup.
	Mark string `json:"mark,omitempty"`
}

// User is a numeric user and group.
type User struct {
	UID int `json:"uid"`
	GID int `json:"gid"`
}

// State says which processes hold the incarnation. A pid alone is no identity:
// it is one only with the start time and the boot id.
type State struct {
	Boot      string    `json:"boot"`
	Keeper    Identity  `json:"keeper"`
	Task      Identity  `json:"task"` // the main process, leader of its session
	StartedAt time.Time `json:"startedAt"`
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
	// OOM says that the kernel killed it for want of memory.
	OOM bool `json:"oom,omitempty"`
	// Term and Kill say that the keeper had passed on SIGTERM, or had killed
	// all of it, because it was told to.
	Term bool `json:"term,omitempty"`
	Kill bool `json:"kill,omitempty"`
	// Never says that nothing of it ever ran.
	Never bool      `json:"never,omitempty"`
	At    time.Time `json:"at"`
	// Message says what is known beyond that.
	Message string `json:"message,omitempty"`
}

// answer is what a keeper writes to its ready pipe, once.
type answer struct {
	State *State `json:"state,omitempty"`
	Error string `json:"error,omitempty"`
	// Command says that Error is the command's fault, not ours.
	Command bool `json:"command,omitempty"`
}

// read reads the JSON file name in dir into v; false if there is none. A file
// that is no JSON is none either: writes are whole, unless the machine went
// down during one.
func read(dir, name string, v any) (bool, error) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	}
	return json.Unmarshal(b, v) == nil, nil
}

// write writes v as the JSON file name in dir, durably and whole: after a crash
// it is there with all of v, or not at all.
func write(dir, name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	temp := filepath.Join(dir, name+".new")
	if err := writeSynced(temp, b); err != nil {
		return err
	}
	if err := os.Rename(temp, filepath.Join(dir, name)); err != nil {
		return err
	}
	return syncDir(dir)
}

func writeSynced(name string, b []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
