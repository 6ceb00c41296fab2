package schema

// Limits bound what a task may have of the kernel beside its Resources.
type Limits struct {
	// Processes is the most processes and threads at once, 16 to 4194304.
	Processes int64 `json:"processes"`
	// Files is the most open descriptors of each process, 16 to 1048576; 0 is
	// DefaultFiles, or what the machine gives where that is less.
	Files int64 `json:"files,omitempty"`
	// CoreBytes is the most that one process that crashes writes as a core file,
	// in bytes, 0 to 64 TiB; with 0 there is none.
	CoreBytes int64 `json:"coreBytes"`
}

// The defaults of Limits.
const (
	// DefaultProcesses stops a fork bomb long before the machine's pid space
	// ends, and leaves room for any server.
	DefaultProcesses = 4096
	// DefaultFiles is room for some thousand connections. What a descriptor holds
	// in the kernel is not all counted as the task's memory: this bounds it.
	DefaultFiles = 4096
)

// Bounds returns the limits of s beside its resources. Files is 0 where it does
// not say.
func (s *TaskSpec) Bounds() Limits {
	if s.Limits == nil {
		return Limits{Processes: DefaultProcesses}
	}
	l := *s.Limits
	if l.Processes == 0 {
		l.Processes = DefaultProcesses
	}
	return l
}

// runLimits are what of Limits only a restart can change: the kernel takes them
// from a process when it starts another.
type runLimits struct {
	Files     int64 `json:"files,omitempty"`
	CoreBytes int64 `json:"coreBytes,omitempty"`
}

// run returns nil for Limits that are in this no different from none.
func (l *Limits) run() *runLimits {
	if l == nil || l.Files == 0 && l.CoreBytes == 0 {
		return nil
	}
	return &runLimits{Files: l.Files, CoreBytes: l.CoreBytes}
}
