package nodeagent

import (
	"fmt"

	"github.com/musterhq/muster/schema"
)

// DiskUse is what directories take of their file system.
type DiskUse struct {
	Bytes  int64
	Inodes int64  // files and directories, of any kind
	Note   string // says when this is only a part
}

// Processes are those of a task, and the user whose files are the task's own.
type Processes struct {
	PIDs []int
	UID  int
}

// A task may have one inode for each inodeBytes of its diskBytes, and leastInodes
// however little that is. File systems are made with one for 16 KiB as a rule
// (ext4), so that not all tasks of a machine can have as many; but few have files
// that small.
const (
	inodeBytes  = 4 << 10
	leastInodes = 4096
)

// InodeLimit returns how many files and directories a task may have whose disk limit
// is diskBytes; 0 is no limit, as of diskBytes.
func InodeLimit(diskBytes int64) int64 {
	if diskBytes <= 0 {
		return 0
	}
	return max(leastInodes, diskBytes/inodeBytes)
}

// Over reports whether u is more than a task may have whose disk limit is diskBytes.
func (u *DiskUse) Over(diskBytes int64) bool {
	return diskBytes > 0 && (u.Bytes > diskBytes || u.Inodes > InodeLimit(diskBytes))
}

// diskExcess says by what a task is over its disk limit, "" if it is not, or is not
// measured.
func diskExcess(u *schema.Usage, ask *schema.Resources) string {
	limit := ask.DiskBytes
	switch {
	case u == nil || limit <= 0:
	case u.DiskBytes > limit:
		return fmt.Sprintf("%s used, limit %s", schema.Bytes(u.DiskBytes), schema.Bytes(limit))
	case u.DiskInodes > InodeLimit(limit):
		return fmt.Sprintf("%s used, limit %s (by its disk limit of %s)", inodes(u.DiskInodes), inodes(InodeLimit(limit)), schema.Bytes(limit))
	}
	return ""
}

// inodes writes a number of files and directories.
func inodes(n int64) string { return schema.Count(int(n), "inode") }

// shortOfDisk reports whether a machine has less disk left, in bytes or inodes, than
// it shall have.
func (l Limits) shortOfDisk(room *schema.MachineUsage) bool {
	return room.DiskFree < l.DiskBytes || l.shortOfInodes(room)
}

func (l Limits) shortOfInodes(room *schema.MachineUsage) bool {
	return room.InodesTotal > 0 && room.InodesFree < l.Inodes
}

// lackOfDisk returns how many bytes more of disk a machine needs to have what it shall
// have: one if only inodes are short, of which nobody knows how many each removal gives.
func (l Limits) lackOfDisk(room *schema.MachineUsage) int64 {
	if room.At.IsZero() { // not measured yet
		return 0
	}
	short := l.DiskBytes - room.DiskFree
	if l.shortOfInodes(room) {
		short = max(short, 1)
	}
	return short
}
