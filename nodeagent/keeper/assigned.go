package keeper

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What a Spare does when its agent has a task for it, and before.

// assigned returns the directory that the agent sends.
func assigned(agent io.Reader) (string, error) {
	size := make([]byte, 2)
	if _, err := io.ReadFull(agent, size); err != nil {
		return "", err
	}
	dir := make([]byte, binary.LittleEndian.Uint16(size))
	_, err := io.ReadFull(agent, dir)
	return string(dir), err
}

// complainIn makes panicFile of dir the standard error.
func complainIn(dir string) error {
	name := filepath.Join(dir, panicFile)
	fd, err := unix.Open(name, unix.O_CLOEXEC|panicFlags, 0o600)
	if err == nil {
		err = errors.Join(unix.Dup3(fd, 2, 0), unix.Close(fd))
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	return nil
}

// warm has done what package json does once for each type.
func warm() {
	for _, v := range []any{&Spec{}, &answer{State: &State{}}, &Exit{}} {
		_ = json.Unmarshal([]byte("{}"), v) // which is one of each of them
	}
}

// renameProcess writes the command line of a keeper of dir over that of a Spare, for Scan and for
// operators. Nothing else may use os.Args, or a part of it.
func renameProcess(dir string) error {
	line, size := unsafe.StringData(os.Args[0]), -1 // one after the other, each with a 0 at its end
	for _, arg := range os.Args {
		size += len(arg) + 1
	}
	args := []string{strings.Clone(os.Args[0]), dir}
	start := len(args[0]) + 1 // of dir
	if start+len(dir) > size {
		return fmt.Errorf("%s: its name has more bytes than there is room for", dir)
	}
	memory := unsafe.Slice(line, size)[start:]
	os.Args = args
	clear(memory)
	copy(memory[1:], dir[1:])
	memory[0] = dir[0] // at last: who looks meanwhile finds no part of the name
	return nil
}
