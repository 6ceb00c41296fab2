package logfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// StatusFile is in the directory of the logs that it is about.
const StatusFile = "logs.status"

// statusSize is the size of one log's Status in the file. It is written in
// place: a full disk takes that too.
const statusSize = 512

// Status is what went wrong with a log.
type Status struct {
	Drops
	// Stalled is since when the disk has not taken one write; zero: it does.
	// The task waits as soon as its pipe is full.
	Stalled time.Time `json:"stalled,omitzero"`
}

// CreateStatus makes the file for a number of logs.
func CreateStatus(dir string, logs int) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, StatusFile), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for i := range logs {
		if err := WriteStatus(f, i, Status{}); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// WriteStatus writes the Status of the log with that number.
func WriteStatus(f *os.File, log int, s Status) error {
	if len(s.Reason) > statusSize/4 {
		s.Reason = s.Reason[:statusSize/4]
	}
	b := []byte("{}") // as package json has it, which first finds out what the type looks like
	var err error
	if s != (Status{}) {
		b, err = json.Marshal(s)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteAt(fmt.Appendf(nil, "%-*s\n", statusSize-1, b), int64(log)*statusSize)
	return err
}

// ReadStatus reads the file in dir: the Status of each log. It has none where
// no file is, as of a run of an older version.
func ReadStatus(dir string) ([]Status, error) {
	path := filepath.Join(dir, StatusFile)
	b, err := readStatus(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	var list []Status
	for ; len(b) >= statusSize; b = b[statusSize:] {
		var s Status
		if err := json.Unmarshal(b[:statusSize], &s); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		list = append(list, s)
	}
	return list, nil
}

// readStatus reads the file at path, that of many logs at most. An agent does so of
// each task again and again: os.ReadFile would ask its poller to watch the file, in
// vain.
func readStatus(path string) ([]byte, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = syscall.Close(fd) }()
	b := make([]byte, 4*statusSize)
	n, err := syscall.Read(fd, b)
	return b[:max(n, 0)], err
}
