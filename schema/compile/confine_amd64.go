package compile

import "golang.org/x/sys/unix"

// legacy are the forbidden calls that only this architecture has.
var legacy = []uint32{
	unix.SYS_OPEN, unix.SYS_CREAT, unix.SYS_UNLINK, unix.SYS_RMDIR, unix.SYS_RENAME, unix.SYS_MKDIR, unix.SYS_MKNOD, unix.SYS_LINK,
	unix.SYS_SYMLINK, unix.SYS_READLINK, unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_UTIME, unix.SYS_UTIMES,
	unix.SYS_ACCESS, unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_NEWFSTATAT, unix.SYS_GETDENTS, unix.SYS_INOTIFY_INIT,
	unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT,
}
