package schema

import "fmt"

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
	Stream      LogStream
	// Follow goes on as the log grows, through later incarnations unless one
	// is chosen, and through later generations unless one is chosen, until the
	// reader leaves or there can be no more on this machine.
	Follow bool
	// Tail is how many of the last lines to begin with; negative for all.
	Tail int
}
