package host

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"golang.org/x/sys/unix"
)

// The budget of a look for files that a task has deleted and still uses. What is
// beyond is left out, and said.
const (
	maxDescriptors = 200_000
	maxMaps        = 4 << 20 // bytes that are read of what a process has mapped
	maxDeleted     = 2 * time.Second
)

// deleted counts the files of the file system that counts which the processes have
// open or mapped, or run, and which have no name any more. Files of other users are not the
// task's, such as a library that was replaced since. Where there is too much to look
// at, it looks at some by chance, so that nothing can be hidden behind it for ever.
func (w *walker) deleted(of nodeagent.Processes) {
	until, left := time.Now().Add(maxDeleted), maxDescriptors
	pids := slices.Clone(of.PIDs)
	rand.Shuffle(len(pids), func(i, j int) { pids[i], pids[j] = pids[j], pids[i] })
	for _, pid := range pids {
		// A process keeps its program, which it can unmap, and the directory that it is in.
		for _, link := range []string{"/exe", "/cwd"} {
			w.nameless(unix.AT_FDCWD, "/proc/"+strconv.Itoa(pid)+link, of.UID)
		}
		for _, thread := range tables(pid, left) {
			if left <= 0 || time.Now().After(until) {
				w.partly("its processes have too many open files to look for deleted ones")
				return
			}
			left -= w.descriptors("/proc/"+strconv.Itoa(thread), of.UID, left) + 1
		}
	}
}

// kcmpFiles compares the tables of descriptors of two threads: KCMP_FILES of
// linux/kcmp.h.
const kcmpFiles = 2

// tables returns threads of a process that have all its descriptors: the first, which
// may have ended before the others, and of the others, at most most, those that do not
// share the table of the first or of the one before them.
func tables(pid, most int) []int {
	list := []int{pid}
	dir, err := os.Open("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		return nil // it has ended
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(most)
	for _, name := range names {
		thread, err := strconv.Atoi(name)
		if err == nil && thread != pid && !sharesFiles(thread, pid) && !sharesFiles(thread, list[len(list)-1]) {
			list = append(list, thread)
		}
	}
	return list
}

func sharesFiles(a, b int) bool {
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(a), uintptr(b), kcmpFiles, 0, 0, 0)
	return errno == 0 && order == 0
}

// descriptors looks at what a thread has open and mapped, up to most, and returns how
// much that was.
func (w *walker) descriptors(proc string, uid, most int) (looked int) {
	fd, err := unix.Open(proc+"/fd", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
			w.partly("what a process has open cannot be seen: %v", err)
		}
		return 0
	}
	defer unix.Close(fd)
	buffer := make([]byte, 8<<10)
	for looked < most {
		n, err := unix.ReadDirent(fd, buffer)
		if err != nil || n <= 0 {
			break // it has ended
		}
		_, _, names := unix.ParseDirent(buffer[:n], -1, nil)
		for _, name := range names {
			w.nameless(fd, name, uid)
		}
		looked += len(names)
	}
	return looked + w.mapped(proc, uid)
}

// nameless counts what a link in /proc leads to, if it is a file of the task's that has no
// name.
func (w *walker) nameless(dir int, link string, uid int) {
	s, err := stat(dir, link, 0)
	if err != nil || s.Nlink != 0 || int(s.Uid) != uid || deviceOf(&s) != w.device {
		return
	}
	w.add(&s)
}

// mapped looks at the deleted files that a process has mapped, which need no
// descriptor, and returns how many there were.
func (w *walker) mapped(proc string, uid int) (looked int) {
	f, err := os.Open(proc + "/maps")
	if err != nil {
		return 0
	}
	defer f.Close()
	buffer := make([]byte, 64<<10)
	var rest []byte
	for total := 0; total < maxMaps; {
		n, err := f.Read(buffer)
		total += n
		rest = append(rest, buffer[:n]...)
		for {
			line, after, ok := bytes.Cut(rest, []byte("\n"))
			if !ok {
				break
			}
			rest = after
			if bytes.HasSuffix(line, []byte(" (deleted)")) {
				looked++
				w.nameless(unix.AT_FDCWD, proc+"/map_files/"+mapName(string(line)), uid)
			}
		}
		if err != nil || n == 0 {
			return looked
		}
		rest = slices.Clone(rest)
	}
	w.partly("a process has too much mapped to look for deleted files")
	return looked
}

// mapName returns the name in map_files of a line of maps, which has zeros in front.
func mapName(line string) string {
	span, _, _ := strings.Cut(line, " ")
	from, to, _ := strings.Cut(span, "-")
	return strings.TrimLeft(from, "0") + "-" + strings.TrimLeft(to, "0")
}
