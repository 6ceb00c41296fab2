package host

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/musterhq/muster/schema"
)

// GroupsName names the cgroup that holds the tasks of one state directory, so
// that several agents can live in one cgroup.
func GroupsName(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return "muster-" + hex.EncodeToString(sum[:4])
}

// TaskGroup names the cgroup of the incarnation of a in dir: unique in the cell for
// ever, and below that of the alloc that the task runs in.
func TaskGroup(dir string, a *schema.Assignment) string {
	name := strings.Join([]string{a.Task.User, a.Task.Job, strconv.Itoa(a.Task.Index), strconv.FormatUint(a.Generation, 10), filepath.Base(dir)}, ".")
	if u := a.Alloc; u != nil {
		name = filepath.Join(AllocGroup(u.Of(a.Task.JobName), u.Generation), name)
	}
	return name
}

// AllocGroup names the cgroup of an alloc's generation.
func AllocGroup(name schema.TaskName, generation uint64) string {
	return strings.Join([]string{name.User, name.Job, strconv.Itoa(name.Index), strconv.FormatUint(generation, 10)}, ".")
}

// AllocGroupIn names the cgroup of the alloc's generation whose directory is gen.
func AllocGroupIn(gen string) string {
	job := filepath.Dir(filepath.Dir(gen))
	return strings.Join([]string{filepath.Base(filepath.Dir(job)), filepath.Base(job), filepath.Base(filepath.Dir(gen)), filepath.Base(gen)}, ".")
}

// TaskGroupIn names the cgroup of the incarnation in dir, without that of an alloc.
func TaskGroupIn(dir string) string {
	return AllocGroupIn(filepath.Dir(dir)) + "." + filepath.Base(dir)
}

// isGroup reports whether name is that of a task's cgroup, or of an alloc's: user,
// job, index, generation and, of a task, incarnation.
func isGroup(name string) bool {
	parts := strings.Split(name, ".")
	if len(parts) < 4 {
		return false
	}
	_, err := strconv.ParseUint(parts[len(parts)-1], 10, 64)
	return err == nil
}

// The directories of a generation, beside those of its incarnations.
const (
	// WorkDir is where a task has its home, and SharedDir what the tasks of an alloc
	// share. Both are the same in each incarnation.
	WorkDir   = "work"
	SharedDir = "shared"
	// LayerDir is what a container changes in its image, anew in each incarnation.
	LayerDir = "layer"
	// Beside the latter are mounted what /dev/shm is inside the alloc, and its ipc
	// namespace.
	shmShared = "shm"
	ipcShared = "ipc"
)
