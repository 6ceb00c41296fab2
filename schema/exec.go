package schema

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// ExecRequest asks for a command to be run beside a running task: in its
// namespaces and cgroup, as its user, with its environment; or for files to be copied.
type ExecRequest struct {
	Task    TaskName
	Command []string  // at least one, none with Copy; $(NAME) is not expanded
	Copy    *ExecCopy // nil: none
	// TTY gives the command a terminal, of Rows and Columns, of the kind Term.
	TTY           bool
	Rows, Columns int // 0 to 65535
	Term          string
}

// ExecCopy is a copy of files, which are the output or the input as package archive has
// them. What could not be copied is said on stderr, a line each. The exit code is 0 if all
// was copied that has a content, CopiedInPart of package archive if not, and its NotCopied if
// the last line says what has ended it.
type ExecCopy struct {
	Direction CopyDirection
	// Path is one of the task, from its working directory on.
	Path string
	// Name is, of a CopyIn, that of what is copied: it has it in Path, if that is a
	// directory. "": the content of what is copied, a directory, goes into Path.
	Name string
}

// CopyDirection says which way files are copied.
type CopyDirection string

// The directions. CopyTar is into the task, of what is in no order of directories, and Path
// is a directory that is there.
const (
	CopyOut CopyDirection = "out"
	CopyIn  CopyDirection = "in"
	CopyTar CopyDirection = "tar"
)

// check errs when the copy cannot be one.
func (c *ExecCopy) check() error {
	switch {
	case c.Direction != CopyOut && c.Direction != CopyIn && c.Direction != CopyTar:
		return fmt.Errorf("copy %q: want %s, %s or %s", c.Direction, CopyOut, CopyIn, CopyTar)
	case c.Path == "" || len(c.Path) > maxExecPath || strings.ContainsRune(c.Path, 0):
		return fmt.Errorf("path %.40q of %d bytes: want 1 to %d, none of them zero", c.Path, len(c.Path), maxExecPath)
	case c.Name == "." || c.Name == ".." || len(c.Name) > maxExecName || strings.ContainsAny(c.Name, "/\x00"):
		return fmt.Errorf("name %.40q: want the name of a file, of at most %d bytes", c.Name, maxExecName)
	}
	return nil
}

// Bounds of an ExecRequest.
const (
	MaxExecArgs  = 1000
	MaxExecBytes = 64 << 10 // of the command with its arguments
	maxTerm      = 100
	maxExecPath  = 4095 // the kernel's
	maxExecName  = 255  // likewise
)

// Check errs when the request cannot be one.
func (r *ExecRequest) Check() error {
	if r.Copy != nil {
		if len(r.Command) > 0 || r.TTY {
			return errors.New("a copy has no command and no terminal")
		}
		return r.Copy.check()
	}
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
