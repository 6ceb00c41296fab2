package schema

import (
	"fmt"
	"time"
)

// LogStream is one of the outputs of a task.
type LogStream string

// The streams.
const (
	Stdout LogStream = "stdout"
	Stderr LogStream = "stderr"
)

// ParseLogStream parses the name of a stream; "" is Stdout.
func ParseLogStream(s string) (LogStream, error) {
	switch LogStream(s) {
	case "", Stdout:
		return Stdout, nil
	case Stderr:
		return Stderr, nil
	}
	return "", fmt.Errorf("log stream %q: want %s or %s", s, Stdout, Stderr)
}

// LogRequest says which log of a task is wanted, and how much of it.
type LogRequest struct {
	Task TaskName
	// Generation and Incarnation choose a run of the task; 0 is the newest
	// that the machine holds.
	Generation  uint64
	Incarnation int
	// Previous chooses the run before the newest of those.
	Previous bool
	Stream   LogStream
	// Follow goes on as the log grows, through later incarnations unless one
	// is chosen, and through later generations unless one is chosen, until the
	// reader leaves or there can be no more on this machine.
	Follow bool
	// Tail is how many of the last lines to begin with; negative for all.
	Tail int
	// Since leaves out what was written before; zero for nothing. It is exact
	// to a second or so.
	Since time.Time
	// From goes on where a reader has left off, whatever else chooses the
	// beginning; nil is the beginning.
	From *LogPosition
	// Framed asks for the log as LogFrames, which say where each piece is.
	Framed bool
}

// LogPosition is a place in all that a task writes to one of its outputs. It
// means the same for ever, and on every machine.
type LogPosition struct {
	Generation  uint64 `json:"generation"`
	Incarnation int    `json:"incarnation"`
	// Offset is how many bytes of the incarnation's log are before it.
	Offset int64 `json:"offset"`
}

// ParseLogPosition parses what LogPosition.String returns.
func ParseLogPosition(s string) (LogPosition, error) {
	var p LogPosition
	if n, err := fmt.Sscanf(s, "%d/%d/%d", &p.Generation, &p.Incarnation, &p.Offset); n != 3 || err != nil || s != p.String() ||
		p.Generation == 0 || p.Incarnation < 1 || p.Offset < 0 {
		return p, fmt.Errorf("log position %q: want GENERATION/INCARNATION/OFFSET, such as 7/1/4096", s)
	}
	return p, nil
}

// String returns GENERATION/INCARNATION/OFFSET.
func (p LogPosition) String() string {
	return fmt.Sprintf("%d/%d/%d", p.Generation, p.Incarnation, p.Offset)
}
