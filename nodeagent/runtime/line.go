package runtime

import (
	"os"
	"path/filepath"
	"time"

	"github.com/musterhq/muster/nodeagent/host"
	"golang.org/x/sys/unix"
)

// lineBytes is how much of the file is read.
const lineBytes = 1024

// clockGrain is how coarse the kernel's times of files are.
const clockGrain = 20 * time.Millisecond

// Line returns the beginning of what the task of p says of itself, "" if that is
// nothing, or older than the incarnation. It is what the task wrote: any bytes.
// The file is the task's to make, so it is read only if it is a plain one of its
// own, under no other name; nothing is followed or waited for.
func (p *Process) Line() string {
	if p.alloc != nil {
		return ""
	}
	path := filepath.Join(filepath.Dir(p.dir), host.WorkDir, lineFile)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	var s unix.Stat_t
	uid := os.Geteuid()
	if u := p.handle.Spec.User; u != nil {
		uid = u.UID
	}
	if unix.Fstat(fd, &s) != nil || s.Mode&unix.S_IFMT != unix.S_IFREG || s.Nlink != 1 || int(s.Uid) != uid {
		return ""
	}
	if time.Unix(s.Mtim.Unix()).Before(p.State().StartedAt.Add(-clockGrain)) {
		return ""
	}
	b := make([]byte, lineBytes)
	n, err := unix.Pread(fd, b, 0)
	if err != nil {
		return ""
	}
	return string(b[:n])
}
