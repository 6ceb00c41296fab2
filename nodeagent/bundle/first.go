//go:build amd64 || arm64

package bundle

import (
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"unsafe"
)

// The first process of a container reaps orphans and ends when the keeper does, and with
// it the kernel ends all else in its pid namespace. So the task's main process is an
// ordinary one: to a first process the kernel delivers no signal that it does not handle.
//
// It ignores SIGCHLD, so the kernel reaps for it; and it writes a byte to the socket at firstFD,
// and then reads there until the keeper's end is closed. It takes no room worth
// mentioning and begins at once, which a program with Go's runtime does not: so it is a few
// instructions, which first has, in a file of the bundle.

// first is the program. It is not called from here.
func first() //nolint:unused // what it consists of is copied

// firstAt is where the instructions of first are.
var firstAt uintptr

// firstSize is at least how many bytes they take. What follows them is never reached.
const firstSize = 256

// machines are e_machine of elf(5).
var machines = map[string]uint16{"amd64": 62, "arm64": 183}

// The file is mapped as a whole at firstBase, a multiple of the largest page.
const (
	firstBase   = 0x400000
	firstAlign  = 0x10000
	headerSize  = 64
	segmentSize = 56
)

// writeFirst writes the program to a file of that name.
func writeFirst(name string) error {
	const code = headerSize + 2*segmentSize
	le := binary.LittleEndian
	b := append([]byte("\x7fELF"), 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0) // 64 bits, little endian
	b = le.AppendUint16(b, 2)                                          // ET_EXEC
	b = le.AppendUint16(b, machines[runtime.GOARCH])
	b = le.AppendUint32(b, 1)
	b = le.AppendUint64(b, firstBase+code) // where it begins
	b = le.AppendUint64(b, headerSize)     // where the segments are listed
	b = le.AppendUint64(b, 0)              // no sections
	b = le.AppendUint32(b, 0)
	for _, n := range []uint16{headerSize, segmentSize, 2, 0, 0, 0} {
		b = le.AppendUint16(b, n)
	}
	segment := func(kind, flags uint32, base, size, align uint64) {
		b = le.AppendUint32(b, kind)
		b = le.AppendUint32(b, flags)
		for _, n := range []uint64{0, base, base, size, size, align} {
			b = le.AppendUint64(b, n)
		}
	}
	segment(1, 5, firstBase, code+firstSize, firstAlign) // PT_LOAD, to be read and executed
	segment(0x6474e551, 6, 0, 0, 16)                     // PT_GNU_STACK, not to be executed
	b = append(b, unsafe.Slice(*(**byte)(unsafe.Pointer(&firstAt)), firstSize)...)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o555)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Chmod(0o555), f.Close()) // whatever the umask
}
