package keeper

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Sealed returns a copy of a program in memory that nobody can change any more.
func Sealed(path string) (*os.File, error) {
	from, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer from.Close()
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("muster-program", flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // older than Linux 6.3
		fd, err = unix.MemfdCreate("muster-program", flags)
	}
	if err != nil {
		return nil, fmt.Errorf("memory for %s: %w", path, err)
	}
	to := os.NewFile(uintptr(fd), "muster-program")
	_, err = to.ReadFrom(from)
	err = errors.Join(err, to.Chmod(0o555))
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE)
	}
	if err != nil {
		return nil, fmt.Errorf("seal a copy of %s: %w", path, errors.Join(err, to.Close()))
	}
	return to, nil
}
