package schema

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// LogChunk is a piece of a log.
type LogChunk struct {
	// LogPosition is where Data begins. Generation 0: whoever sent it does not
	// say.
	LogPosition
	// Missed is how many bytes before it were removed before they were read.
	Missed int64
	Data   []byte
}

// LogMagic begins a log in frames. An older agent sends the log as it is.
const LogMagic = "muster-log-frames/1\n"

// maxLogFrame is the most that one frame may have, in bytes.
const maxLogFrame = 1 << 20

// AppendLogFrame appends a frame to b: a line with the position, what was
// missed, and the length of the data that follows.
func AppendLogFrame(b []byte, c LogChunk) []byte {
	b = fmt.Appendf(b, "%s %d %d\n", c.LogPosition, c.Missed, len(c.Data))
	return append(b, c.Data...)
}

// LogFrames reads a log that was asked for in frames. It belongs to one
// goroutine.
type LogFrames struct {
	r      *bufio.Reader
	begun  bool
	framed bool
	buffer []byte
}

// NewLogFrames returns a reader of the frames in r.
func NewLogFrames(r io.Reader) *LogFrames { return &LogFrames{r: bufio.NewReader(r)} }

// Next returns the next chunk, whose Data is valid until the next call. The
// error is io.EOF after the last.
func (f *LogFrames) Next() (LogChunk, error) {
	if !f.begun {
		magic, err := f.r.Peek(len(LogMagic))
		if f.framed = bytes.Equal(magic, []byte(LogMagic)); f.framed {
			_, _ = f.r.Discard(len(LogMagic)) // it is there
		} else if len(magic) == 0 {
			return LogChunk{}, err
		}
		f.begun = true
	}
	if !f.framed {
		return f.plain()
	}
	line, err := f.r.ReadSlice('\n')
	if err != nil {
		if len(line) > 0 && errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return LogChunk{}, err
	}
	var c LogChunk
	var n int
	p := &c.LogPosition
	if got, err := fmt.Sscanf(string(line), "%d/%d/%d %d %d\n", &p.Generation, &p.Incarnation, &p.Offset, &c.Missed, &n); got != 5 || n < 0 || n > maxLogFrame {
		return LogChunk{}, fmt.Errorf("frame of a log: %.80q: %w", line, err)
	}
	if cap(f.buffer) < n {
		f.buffer = make([]byte, n)
	}
	c.Data = f.buffer[:n]
	if _, err := io.ReadFull(f.r, c.Data); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return LogChunk{}, err
	}
	return c, nil
}

// plain returns what there is of a log without frames.
func (f *LogFrames) plain() (LogChunk, error) {
	if _, err := f.r.Peek(1); err != nil {
		return LogChunk{}, err
	}
	f.buffer = append(f.buffer[:0], make([]byte, f.r.Buffered())...)
	n, err := f.r.Read(f.buffer)
	return LogChunk{Data: f.buffer[:n]}, err
}
