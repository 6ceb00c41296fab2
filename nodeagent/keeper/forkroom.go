package keeper

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// forkRoom is memory beside the heap with all that a child looks at between its fork
// and its exec. So the heap need not be copied into the child, nor pages of it each
// time that this process writes to one which a child has, too: see hideHeap.
type forkRoom struct {
	memory []byte
	used   int
}

// reset empties the room, and makes it so many bytes large at least. What was in it
// must not be used any more.
func (r *forkRoom) reset(size int) error {
	r.used = 0
	if size <= len(r.memory) {
		return nil
	}
	page := os.Getpagesize()
	memory, err := unix.Mmap(-1, 0, (size+page-1)/page*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return fmt.Errorf("memory for a child: %w", err)
	}
	if r.memory != nil {
		err = unix.Munmap(r.memory)
	}
	r.memory = memory
	return err
}

// roomAlign is what no type in a room needs more than.
const roomAlign = 16

// put copies a list into the room, which must be large enough.
func put[T any](r *forkRoom, list []T) []T {
	if len(list) == 0 {
		return nil
	}
	r.used = (r.used + roomAlign - 1) / roomAlign * roomAlign
	size := len(list) * int(unsafe.Sizeof(list[0]))
	at := r.memory[r.used : r.used+size]
	r.used += size
	out := unsafe.Slice((*T)(unsafe.Pointer(&at[0])), len(list))
	copy(out, list)
	return out
}

// text copies a string into the room, as the kernel takes it.
func (r *forkRoom) text(s string) (*byte, error) {
	if strings.IndexByte(s, 0) >= 0 {
		return nil, syscall.EINVAL
	}
	b := r.memory[r.used : r.used+len(s)+1]
	r.used += len(b)
	b[copy(b, s)] = 0
	return &b[0], nil
}

// texts copies strings into the room, as the kernel takes them: after the last is nil.
func (r *forkRoom) texts(list []string) ([]*byte, error) {
	out := put(r, make([]*byte, len(list)+1))
	for i, s := range list {
		var err error
		if out[i], err = r.text(s); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// roomOf returns what so many lists and strings take at most.
func roomOf(bytes int, texts ...[]string) int {
	for _, list := range texts {
		bytes += roomAlign + int(unsafe.Sizeof((*byte)(nil)))*(len(list)+1)
		for _, s := range list {
			bytes += len(s) + 1
		}
	}
	return bytes
}

// mapping is a line of one's own maps.
type mapping struct {
	from, to uintptr
	access   string // such as r-xp
	path     string // "" for memory
}

// library reports whether m is code of a file beside program. A C library has memory that
// cannot be distinguished from the heap, and that the kernel writes to before a child has
// run one instruction (rseq): without it the child is killed by SIGSEGV.
func (m mapping) library(program string) bool {
	return m.access[2] == 'x' && strings.HasPrefix(m.path, "/") && m.path != program
}

// mappings lists what this process has mapped.
func mappings() ([]mapping, error) {
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	var list []mapping
	for line := range strings.Lines(string(text)) {
		// 00400000-00500000 r-xp 00000000 fe:00 1234 /path/of/program
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		low, high, _ := strings.Cut(f[0], "-")
		from, errA := strconv.ParseUint(low, 16, 64)
		to, errB := strconv.ParseUint(high, 16, 64)
		if err := errors.Join(errA, errB); err != nil {
			return nil, err
		}
		list = append(list, mapping{uintptr(from), uintptr(to), f[1], strings.Join(f[5:], " ")})
	}
	return list, nil
}

// hideHeap has forks copy nothing of this process's memory but its program's and the
// room. What the heap grows by later is copied until it is called again. Nothing but
// time depends on its success, and a program that is linked with a C library goes without.
func (r *forkRoom) hideHeap() {
	list, err := mappings()
	if err != nil {
		return
	}
	program, _ := os.Readlink("/proc/self/exe") // unknown: no child needs its variables, either
	from := uintptr(unsafe.Pointer(unsafe.SliceData(r.memory)))
	to := from + uintptr(len(r.memory))
	if slices.ContainsFunc(list, func(m mapping) bool { return m.library(program) }) {
		return
	}
	end := uintptr(0) // of the program's file, after which are its other variables
	for _, m := range list {
		if m.path != "" && m.path == program {
			end = m.to
		}
		if m.access[1] != 'w' || m.path != "" && m.path != "[stack]" || m.from == end {
			continue
		}
		hide(m.from, min(m.to, max(from, m.from))) // the room may be a part of it
		hide(max(m.from, min(to, m.to)), m.to)
	}
}

func hide(from, to uintptr) {
	if from < to {
		_, _, _ = unix.RawSyscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTFORK)
	}
}
