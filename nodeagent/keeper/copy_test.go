package keeper

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOwnProgram: what is executed inside a task is this program, and whoever gets hold of it
// there changes nothing.
func TestOwnProgram(t *testing.T) {
	t.Parallel()
	fd, err := ownProgram()
	if err != nil {
		t.Fatal(err)
	}
	program := os.NewFile(uintptr(fd), "program")
	defer program.Close()
	want, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(io.NewSectionReader(program, 0, 1<<40))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("it has %d bytes, %v; want the %d of this program", len(got), err, len(want))
	}
	again, err := os.OpenFile("/proc/self/fd/"+strconv.Itoa(fd), os.O_RDWR, 0)
	if err == nil { // as root alone
		_, err = again.WriteAt([]byte("x"), 0)
		err = errors.Join(err, again.Truncate(1), again.Close())
	}
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		t.Errorf("it was changed: %v", err)
	}
	if after, _ := io.ReadAll(io.NewSectionReader(program, 0, 1<<40)); !bytes.Equal(after, want) {
		t.Error("it was changed")
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE); !errors.Is(err, unix.EPERM) {
		t.Errorf("its seals can be changed: %v", err)
	}
}
