package keeper

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Spare is a keeper without a task, which has done what takes a keeper long to begin. It knows of no
// directory and has made nothing on disk; it ends when its agent does, however that ends. It is
// for one goroutine at a time.
type Spare struct {
	h       *Handle
	ready   *os.File
	exe     string
	is      unix.Stat_t // of exe as it was executed
	program *os.File
}

// spareRoom is the most that the name of a directory may have that a Spare is given, in bytes.
const spareRoom = 1 << 10

// NewSpare starts exe as a Spare and returns when it is ready, or at the end of ctx. owner is the
// agent's state directory, program as Launch has it. After an error nothing is left.
func NewSpare(ctx context.Context, exe, owner string, program *os.File) (*Spare, error) {
	s := &Spare{h: &Handle{}, exe: exe, program: program}
	err := unix.Stat(exe, &s.is)
	if err != nil {
		return nil, &os.PathError{Op: "stat", Path: exe, Err: err}
	}
	room := strings.Repeat(" ", spareRoom)
	if s.ready, err = s.h.launch(launching{exe: exe, args: []string{spareArg, owner, room}, program: program}); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.ready.SetDeadline(time.Unix(1, 0)) })
	_, err = io.ReadFull(s.ready, make([]byte, 1))
	if !stop() {
		err = errors.Join(err, context.Cause(ctx))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("a keeper that was to wait for a task: %w", err), s.Close())
	}
	return s, nil
}

// Fits reports whether it is what Launch would start now for dir and program; executes is false of a task for
// which no program is executed as a runtime, whichever the keeper has.
func (s *Spare) Fits(dir string, program *os.File, executes bool) bool {
	var now unix.Stat_t
	return len(dir) <= spareRoom && (program == s.program || !executes) &&
		unix.Stat(s.exe, &now) == nil && now.Dev == s.is.Dev && now.Ino == s.is.Ino && now.Ctim == s.is.Ctim
}

// Launch has it be the keeper of dir, as Launch does, and is its last use. After an error it has not
// begun with that, and is closed.
func (s *Spare) Launch(dir string) (*Starting, error) {
	if _, err := s.ready.Write(append(binary.LittleEndian.AppendUint16(nil, uint16(len(dir))), dir...)); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.h.dir = dir
	return &Starting{s.h, s.ready}, nil
}

// Close ends it, and returns when that has come.
func (s *Spare) Close() error {
	return errors.Join(s.ready.Close(), s.h.send(unix.SIGKILL), s.h.await(), s.h.Close())
}
