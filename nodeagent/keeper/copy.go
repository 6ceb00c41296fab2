package keeper

import (
	"errors"
	"fmt"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/schema/archive"
)

// Files are copied by this program, inside a task, where it has what a command beside the
// task has and no more. So an image needs no program for it, and every path is the task's.

// The directions of a copy. CopyTar is into the task, of any archive.
const (
	CopyOut = "out"
	CopyIn  = "in"
	CopyTar = "tar"
)

// copyFiles copies to or from path, and returns the exit status.
func copyFiles(direction, path, name string) int {
	failed := false
	report := func(err error) {
		failed = failed || !errors.Is(err, archive.ErrLeftOut)
		fmt.Fprintln(os.Stderr, err)
	}
	var err error
	switch direction {
	case CopyOut:
		err = archive.Pack(os.Stdout, path, report)
	case CopyIn, CopyTar:
		// Who has left is seen in the input, which ends too early: a file that is not
		// complete is removed then.
		signal.Ignore(unix.SIGHUP)
		unix.Umask(0)
		err = archive.Unpack(os.Stdin, archive.Target{Path: path, Name: name, Any: direction == CopyTar})
	default:
		err = fmt.Errorf("copy %q: want %s, %s or %s", direction, CopyOut, CopyIn, CopyTar)
	}
	switch {
	case err != nil:
		report(err)
		return archive.NotCopied
	case failed:
		return archive.CopiedInPart
	}
	return 0
}

// ownProgram returns a descriptor of a copy of this program in memory, which nobody can
// change: the file itself, through /proc, could be written to by a task whose user is its
// owner.
func ownProgram() (int, error) {
	program, err := Sealed("/proc/self/exe")
	if err != nil {
		return 0, err
	}
	defer program.Close()
	return unix.FcntlInt(program.Fd(), unix.F_DUPFD_CLOEXEC, beyondStandard)
}

// beyondStandard is the least descriptor that is none of the standard three.
const beyondStandard = 3
