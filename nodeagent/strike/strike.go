package strike

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// Effect is one thing that a process is about to do, such as "rename /d/x.new".
type Effect struct {
	// PID is the process's, and N the number of its effects so far with this one.
	PID, N int
	// Call is the system call's name: open (which creates or truncates), write,
	// sync, rename, unlink, mkdir, truncate, flock, fork, kill, exit.
	Call string
	// Path is what it is done to, of a rename what is renamed; "" of none. What has
	// no name is as the kernel writes it, such as pipe:[123].
	Path string
}

// String returns call and path.
func (e Effect) String() string { return strings.TrimSpace(e.Call + " " + e.Path) }

// OnDisk reports whether a full or broken disk can refuse it.
func (e Effect) OnDisk() bool {
	switch e.Call {
	case "open", "write", "sync", "rename", "mkdir", "truncate":
	default:
		return false
	}
	for _, other := range []string{"/proc/", "/sys/", "/dev/"} {
		if strings.HasPrefix(e.Path, other) {
			return false
		}
	}
	return strings.HasPrefix(e.Path, "/")
}

// Verdict is what befalls the process; zero lets it go on.
type Verdict struct {
	Kill  bool          // SIGKILL, before the effect
	Errno syscall.Errno // the effect does not come about, for this reason
}

// suffix makes a program's name that of the pipe to its tracer, planSuffix that
// of the file with the path of what it stands for.
const (
	suffix     = ".strike"
	planSuffix = ".real"
)

// IsCall reports whether this process was started by the path of a Tracer's
// program: then TestMain calls Exec before anything else.
func IsCall() bool {
	_, err := os.Lstat(os.Args[0] + suffix)
	return err == nil && strings.Contains(os.Args[0], "/")
}

// traced reports whether the calling thread has a tracer.
func traced() (bool, error) {
	b, err := os.ReadFile("/proc/thread-self/status")
	if err != nil {
		return false, err
	}
	_, rest, ok := bytes.Cut(b, []byte("\nTracerPid:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	if !ok {
		return false, fmt.Errorf("/proc/thread-self/status: no TracerPid")
	}
	return string(bytes.TrimSpace(line)) != "0", nil
}
