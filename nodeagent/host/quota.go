package host

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"sync"
	"unsafe"

	"github.com/musterhq/muster/nodeagent"
	"golang.org/x/sys/unix"
)

// Project quotas, of ext4 and xfs where they are mounted with prjquota: each
// directory that a task writes to is a project of its own, of which the kernel counts
// bytes and inodes, whatever becomes of the names, and refuses what is too much. What
// follows is from the kernel's linux/quota.h and linux/fs.h.
const (
	projectQuota = 2
	getQuota     = 0x800007<<8 | projectQuota
	setQuota     = 0x800008<<8 | projectQuota
	getState     = 0x5805<<8 | projectQuota
	quotaLimits  = 1 | 4 // QIF_BLIMITS, QIF_ILIMITS
	quotaBlock   = 1024  // the unit of limits, in bytes

	getAttributes  = 0x801c581f // FS_IOC_FSGETXATTR
	inheritProject = 0x200      // FS_XFLAG_PROJINHERIT

	projectsEnforced = 1 << 5 // FS_QUOTA_PDQ_ENFD
)

// The requests of ioctl by which the owner of a file gives it to another project.
const (
	SetAttributes = 0x401c5820 // FS_IOC_FSSETXATTR
	SetFlags      = 0x40086602 // FS_IOC_SETFLAGS, of a kernel of 64 bits
)

// attributes is struct fsxattr.
type attributes struct {
	flags, extentSize, extents, project, copySize uint32
	_                                             [8]byte
}

// diskQuota is struct if_dqblk.
type diskQuota struct {
	hardBlocks, softBlocks, bytes  uint64
	hardInodes, softInodes, inodes uint64
	blockTime, inodeTime           uint64
	valid, _                       uint32
}

// quotaState is the beginning of struct fs_quota_stat, with room for the rest.
type quotaState struct {
	_     uint16
	flags uint16
	_     [124]byte
}

// Projects of an agent: projectsOf of them, from one that follows from its state
// directory, so that agents which share a file system rarely use the same. They are above
// the numbers that administrators use.
const (
	firstProject = 1 << 30
	projectsOf   = 1 << 16
)

// quotas are the project quotas of the state directory's file system.
type quotas struct {
	first uint32

	mu   sync.Mutex // guards next, and that a project is taken once
	next uint32
}

func newQuotas(dir string) *quotas {
	h := fnv.New32a()
	_, _ = io.WriteString(h, dir) // a hash takes everything
	return &quotas{first: firstProject + h.Sum32()%(firstProject/projectsOf)*projectsOf}
}

// findQuotas returns the quotas of a state directory; nil if the kernel does not
// enforce any there, or the agent may not set them.
func findQuotas(dir string) (*quotas, error) {
	f, err := os.OpenFile(dir, openDirFlags, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fd, q := int(f.Fd()), newQuotas(dir)
	var state quotaState
	if quotactl(fd, getState, 0, unsafe.Pointer(&state)) != nil || state.flags&projectsEnforced == 0 {
		return nil, nil
	}
	var d diskQuota
	if err := quotactl(fd, getQuota, q.first, unsafe.Pointer(&d)); err != nil && !errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return q, nil
}

// hold holds what is put into dir to a limit of so many bytes, and the inodes that go
// with it; 0 is no limit. A directory that was not held before and has something in
// it is left alone: only what comes would count.
func (q *quotas) hold(dir string, bytes int64) error {
	if q == nil {
		return nil
	}
	f, err := os.OpenFile(dir, openDirFlags, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	fd := int(f.Fd())
	project, err := q.project(fd)
	if err != nil {
		return fmt.Errorf("quota of %s: %w", dir, err)
	}
	if project == 0 {
		if names, err := f.Readdirnames(1); len(names) > 0 || err != io.EOF || bytes == 0 {
			return nil
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		if project, err = q.free(fd); err != nil {
			return fmt.Errorf("quota of %s: %w", dir, err)
		}
	}
	err = setLimits(fd, project, bytes)
	if err == nil {
		err = setProject(fd, project)
	}
	if err != nil {
		return fmt.Errorf("quota of %s: %w", dir, err)
	}
	return nil
}

// use returns what is counted of dir, nothing if it is not held.
func (q *quotas) use(dir string) (bytes, inodes int64) {
	if q == nil {
		return 0, 0
	}
	f, err := os.OpenFile(dir, openDirFlags, 0)
	if err != nil {
		return 0, 0
	}
	defer f.Close()
	project, err := q.project(int(f.Fd()))
	if err != nil || project == 0 {
		return 0, 0
	}
	var d diskQuota
	if quotactl(int(f.Fd()), getQuota, project, unsafe.Pointer(&d)) != nil {
		return 0, 0
	}
	return int64(d.bytes), int64(d.inodes)
}

// project returns the project of an open directory, 0 if it is none of ours.
func (q *quotas) project(fd int) (uint32, error) {
	a, err := attributesOf(fd)
	if err != nil || a.project < q.first || a.project >= q.first+projectsOf {
		return 0, err
	}
	return a.project, nil
}

// free finds a project that counts nothing: what was one before is gone from the disk.
func (q *quotas) free(fd int) (uint32, error) {
	for range projectsOf {
		project := q.first + q.next
		q.next = (q.next + 1) % projectsOf
		var d diskQuota
		err := quotactl(fd, getQuota, project, unsafe.Pointer(&d))
		if errors.Is(err, unix.ENOENT) || err == nil && d.bytes == 0 && d.inodes == 0 {
			return project, nil
		}
		if err != nil {
			return 0, err
		}
	}
	return 0, errors.New("all projects are in use")
}

func setLimits(fd int, project uint32, bytes int64) error {
	d := diskQuota{valid: quotaLimits, hardBlocks: uint64((bytes + quotaBlock - 1) / quotaBlock), hardInodes: uint64(nodeagent.InodeLimit(bytes))}
	return quotactl(fd, setQuota, project, unsafe.Pointer(&d))
}

func setProject(fd int, project uint32) error {
	a, err := attributesOf(fd)
	if err != nil {
		return err
	}
	a.project, a.flags = project, a.flags|inheritProject
	return ioctl(fd, SetAttributes, &a)
}

func attributesOf(fd int) (a attributes, err error) {
	err = ioctl(fd, getAttributes, &a)
	return a, err
}

func ioctl(fd int, request uintptr, a *attributes) error {
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(a)))
	if e != 0 {
		return os.NewSyscallError("ioctl", e)
	}
	return nil
}

// quotactl needs Linux 5.14: before, a quota could be named by its device only.
func quotactl(fd, command int, project uint32, data unsafe.Pointer) error {
	_, _, e := unix.Syscall6(unix.SYS_QUOTACTL_FD, uintptr(fd), uintptr(command), uintptr(project), uintptr(data), 0, 0)
	if e != 0 {
		return os.NewSyscallError("quotactl", e)
	}
	return nil
}

// written returns the directories that the task of a generation writes to, of which
// each is held, by those that are measured of it.
func written(measured []string) []string {
	dirs := make([]string, 0, len(measured))
	for i, dir := range measured {
		name := WorkDir
		if i > 0 {
			name = nodeagent.StickyData
		}
		dirs = append(dirs, filepath.Join(dir, name))
	}
	return dirs
}
