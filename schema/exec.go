package schema

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// ExecRequest asks for a command to be run beside a running task: in its
// namespaces and cgroup, as its user, with its environment.
type ExecRequest struct {
	Task    TaskName
	Command []string // at least one; $(NAME) is not expanded
	// TTY gives the command a terminal, of Rows and Columns, of the kind Term.
	TTY           bool
	Rows, Columns int // 0 to 65535
	Term          string
}

// Bounds of an ExecRequest.
const (
	MaxExecArgs  = 1000
	MaxExecBytes = 64 << 10 // of the command with its arguments
	maxTerm      = 100
)

// Check errs when the request cannot be one.
func (r *ExecRequest) Check() error {
	bytes := 0
	for _, a := range r.Command {
		bytes += len(a) + 1
		for i := range len(a) {
			if a[i] == 0 {
				return fmt.Errorf("command: argument %.40q has a zero byte", a)
			}
		}
	}
	switch {
	case len(r.Command) == 0 || r.Command[0] == "":
		return errors.New("no command")
	case len(r.Command) > MaxExecArgs || bytes > MaxExecBytes:
		return fmt.Errorf("command: %d arguments with %d bytes: want at most %d with %d", len(r.Command), bytes, MaxExecArgs, MaxExecBytes)
	case r.Rows < 0 || r.Rows >= 1<<16 || r.Columns < 0 || r.Columns >= 1<<16:
		return fmt.Errorf("window of %d rows and %d columns: want 0 to 65535 of each", r.Rows, r.Columns)
	case len(r.Term) > maxTerm:
		return fmt.Errorf("terminal %.40q…: want at most %d bytes", r.Term, maxTerm)
	}
	for i := range len(r.Term) {
		if r.Term[i] <= ' ' || r.Term[i] > '~' {
			return fmt.Errorf("terminal %q: want the name of a kind of terminal, such as xterm", r.Term)
		}
	}
	return nil
}

// ExecKind is what a frame of a session is.
type ExecKind byte

// The kinds of frame. The first group goes to the command, the second comes
// from it; the last of these is ExecExit or ExecFailure.
const (
	ExecInput  ExecKind = 'i'
	ExecEOF    ExecKind = 'e' // of the input
	ExecWindow ExecKind = 'w' // rows and columns, 2 bytes each
	ExecSignal ExecKind = 's' // one byte: the number of the signal

	ExecStdout  ExecKind = 'o' // with a terminal also what the command writes to stderr
	ExecStderr  ExecKind = 'r'
	ExecExit    ExecKind = 'x' // an Exit as JSON
	ExecFailure ExecKind = 'f' // text: it could not be run
	ExecRoom    ExecKind = 'c' // 4 bytes: how many bytes of input were taken
)

// ExecInputRoom is how many bytes of input may be in progress and not taken yet.
const ExecInputRoom = 128 << 10

// MaxExecFrame is the most data in one frame, in bytes.
const MaxExecFrame = 32 << 10

const execHeader = 5 // kind, and the length of the data in 4 bytes, big endian

// AppendExecFrame appends a frame to b.
func AppendExecFrame(b []byte, kind ExecKind, data []byte) []byte {
	b = binary.BigEndian.AppendUint32(append(b, byte(kind)), uint32(len(data)))
	return append(b, data...)
}

// ExecFrames reads frames. It belongs to one goroutine.
type ExecFrames struct {
	r      io.Reader
	buffer []byte
}

// NewExecFrames returns a reader of the frames in r.
func NewExecFrames(r io.Reader) *ExecFrames {
	return &ExecFrames{r, make([]byte, MaxExecFrame)}
}

// Next returns the next frame, whose data is valid until the next call. The
// error is io.EOF after the last.
func (f *ExecFrames) Next() (ExecKind, []byte, error) {
	var head [execHeader]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > MaxExecFrame {
		return 0, nil, fmt.Errorf("frame %q of %d bytes: want at most %d", head[0], n, MaxExecFrame)
	}
	if _, err := io.ReadFull(f.r, f.buffer[:n]); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return ExecKind(head[0]), f.buffer[:n], nil
}

// EncodeExecWindow returns the data of an ExecWindow.
func EncodeExecWindow(rows, columns int) []byte {
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, uint16(rows)), uint16(columns))
}

// DecodeExecWindow returns what an ExecWindow says.
func DecodeExecWindow(b []byte) (rows, columns int, err error) {
	if len(b) != 4 {
		return 0, 0, fmt.Errorf("a window in %d bytes: want 4", len(b))
	}
	return int(binary.BigEndian.Uint16(b)), int(binary.BigEndian.Uint16(b[2:])), nil
}

// EncodeExecExit returns the data of an ExecExit.
func EncodeExecExit(e Exit) ([]byte, error) { return json.Marshal(e) }

// DecodeExecExit returns what an ExecExit says.
func DecodeExecExit(b []byte) (Exit, error) {
	var e Exit
	err := json.Unmarshal(b, &e)
	return e, err
}
