package schema

import (
	"cmp"
	"slices"
	"time"
)

// MachineUsage is what a machine and the tasks on it use: one sample of its
// agent. It is returned on request and kept in memory only: it is never stored, and
// no part of a Report.
type MachineUsage struct {
	Machine string    `json:"machine"`
	At      time.Time `json:"at"` // by the machine's own clock
	// CPUMilli is what the whole machine used of its processors, in thousandths
	// of a core, whoever used it.
	CPUMilli int64 `json:"cpuMilli"`
	// RAMTotal is the memory of the machine or of the agent's surroundings, and
	// RAMAvailable what of it can be had without taking it from anyone, in bytes.
	RAMTotal     int64 `json:"ramTotalBytes"`
	RAMAvailable int64 `json:"ramAvailableBytes"`
	// DiskTotal is the size of the file system of the agent's state directory,
	// and DiskFree what of it tasks can have, in bytes.
	DiskTotal int64 `json:"diskTotalBytes"`
	DiskFree  int64 `json:"diskFreeBytes"`
	// InodesTotal and InodesFree count the files that this file system can hold,
	// and those that it has room for; both are 0 where there is no such bound.
	InodesTotal int64       `json:"inodesTotal,omitempty"`
	InodesFree  int64       `json:"inodesFree,omitempty"`
	Tasks       []TaskUsage `json:"tasks"` // those that run, sorted by task
}

// TaskUsage is the usage of one incarnation of a task.
type TaskUsage struct {
	Task        TaskName `json:"task"`
	Generation  uint64   `json:"generation"`
	Incarnation int      `json:"incarnation"`
	Usage
}

// Usage is what one incarnation uses. Rates are over the time between two
// samples, some seconds; what cannot be measured is 0, and Note says so.
type Usage struct {
	At time.Time `json:"at"` // by the machine's own clock
	// CPUMilli is in thousandths of a core.
	CPUMilli int64 `json:"cpuMilli"`
	// RAMBytes is the working set: resident memory without the page cache that
	// the kernel would take back first. CacheBytes is all of the page cache that
	// is charged to the task, so the two may overlap.
	RAMBytes   int64 `json:"ramBytes"`
	CacheBytes int64 `json:"cacheBytes"`
	// DiskBytes is what the task's directories (work, logs, sticky), and files that it
	// has deleted and still has open, take of the file system, and DiskInodes how many
	// files and directories that are, as of DiskAt, when counting began; zero DiskAt:
	// not measured yet. DiskNote says when it is only a part.
	DiskBytes  int64     `json:"diskBytes"`
	DiskInodes int64     `json:"diskInodes"`
	DiskAt     time.Time `json:"diskAt,omitzero"`
	DiskNote   string    `json:"diskNote,omitempty"`
	// Processes counts processes and threads where there is a cgroup, else
	// processes.
	Processes int64 `json:"processes"`
	// ThrottledMilli is the share of the time, in thousandths, in which the
	// task's CPU limit held it back; more than 1000 where several processors
	// were held back at once.
	ThrottledMilli int64 `json:"throttledMilli"`
	// DelayMilli is for how many thousandths of a second in each second the
	// task's threads, all together, were ready and had no processor.
	DelayMilli int64 `json:"delayMilli"`
	// OOMKills counts the processes of the incarnation that the kernel killed
	// for lack of memory.
	OOMKills int64 `json:"oomKills"`
	// Note says what is not measured, "" if all is.
	Note string `json:"note,omitempty"`
}

// Overload is an agent's word that its machine has too little CPU for the tasks
// that come first on it, for so long that throttling the others does not help.
type Overload struct {
	Since   time.Time `json:"since"` // by the machine's own clock
	Message string    `json:"message"`
	// Suffers is the prod task that waits most; the zero name from an agent that does not say.
	Suffers TaskName `json:"suffers,omitzero"`
	// Relief are non-prod tasks that would relieve the machine if they ran
	// elsewhere, the first before the others.
	Relief []TaskRef `json:"relief,omitempty"`
}

// TaskRef is a generation of a task.
type TaskRef struct {
	Task       TaskName `json:"task"`
	Generation uint64   `json:"generation"`
}

// Compare orders references by task and generation.
func (r TaskRef) Compare(o TaskRef) int {
	return cmp.Or(r.Task.Compare(o.Task), cmp.Compare(r.Generation, o.Generation))
}

// SortUsage sorts by task and generation.
func SortUsage(list []TaskUsage) {
	slices.SortFunc(list, func(a, b TaskUsage) int {
		return TaskRef{a.Task, a.Generation}.Compare(TaskRef{b.Task, b.Generation})
	})
}
