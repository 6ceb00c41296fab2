package runtime

import "strings"

// Directories that each task has of its own, where the machine has them.
const (
	tmpDir      = "/tmp"
	varTmpDir   = "/var/tmp"
	shmDir      = "/dev/shm"
	devDir      = "/dev"
	procDir     = "/proc"
	sysDir      = "/sys"
	cgroupMount = "/sys/fs/cgroup"
	pressureDir = "/proc/pressure"
)

// Where a task with a root directory of its own finds what is its own: the
// paths of the machine mean nothing there.
const (
	ownDir     = "/muster"
	ownWork    = "/muster/work"
	ownSticky  = "/muster/sticky"
	ownShared  = "/muster/alloc"
	ownSecrets = "/muster/secrets"
)

// replaced are the entries of a task's own root directory that it does not see.
var replaced = []string{procDir, sysDir, tmpDir, ownDir, devDir}

// below reports whether path is dir or lies in it.
func below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
