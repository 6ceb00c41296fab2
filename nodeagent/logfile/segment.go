package logfile

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Limits bound what is kept of one log.
type Limits struct {
	// MaxBytes is the size of a segment with its index, in bytes. A line that
	// is cut by the end of a segment goes on in the next.
	MaxBytes int64 `json:"maxBytes"`
	// Files is how many segments are kept, at least 2: one that is written to,
	// and what came before it.
	Files int `json:"files"`
}

// DefaultLimits are those of a log that has none of its own: 16 MiB, with what
// is kept of the other output 32 MiB a run.
var DefaultLimits = Limits{MaxBytes: 4 << 20, Files: 4}

// fill puts defaults in place of what is not set.
func (l *Limits) fill() {
	l.MaxBytes = cmp.Or(l.MaxBytes, DefaultLimits.MaxBytes)
	l.Files = max(cmp.Or(l.Files, DefaultLimits.Files), 2)
}

// timesSuffix marks a segment's index of times: stamps, oldest first.
const timesSuffix = ".times"

// readFile reads a file. What was put in its place is not waited for.
func readFile(name string) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(f)
	return b, errors.Join(err, f.Close())
}

// segmentPath returns the path of the segment of a log that begins at a byte.
func segmentPath(dir, name string, start int64) string {
	path := filepath.Join(dir, name)
	if start > 0 {
		path += "." + strconv.FormatInt(start, 10)
	}
	return path
}

// segments returns where the segments in dir begin, in order.
func segments(dir, name string) ([]int64, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var starts []int64
	for _, n := range names {
		if n == name {
			starts = append(starts, 0)
			continue
		}
		number, ok := strings.CutPrefix(n, name+".")
		if !ok {
			continue
		}
		if start, err := strconv.ParseInt(number, 10, 64); err == nil && start > 0 {
			starts = append(starts, start)
		}
	}
	slices.Sort(starts)
	return starts, nil
}

// stamp says that what begins at Offset of the log came at At or later, and
// what is before it earlier.
type stamp struct {
	at     time.Time
	offset int64
}

const stampSize = 16

func (s stamp) encode(b *[stampSize]byte) {
	binary.LittleEndian.PutUint64(b[:8], uint64(s.at.UnixNano()))
	binary.LittleEndian.PutUint64(b[8:], uint64(s.offset))
}

// stamps reads the index of a segment; one that cannot be read is empty, and
// half a stamp at the end is none.
func stamps(path string) []stamp {
	b, err := readFile(path + timesSuffix)
	if err != nil {
		return nil
	}
	var list []stamp
	for ; len(b) >= stampSize; b = b[stampSize:] {
		list = append(list, stamp{
			time.Unix(0, int64(binary.LittleEndian.Uint64(b[:8]))), int64(binary.LittleEndian.Uint64(b[8:stampSize])),
		})
	}
	return list
}
