package schema

import (
	"slices"
	"time"
)

// Stop says how a task is stopped, within its grace period: by a command beside it, if
// there is one, and then by a signal.
type Stop struct {
	// Command is as that of Process, $(NAME) included; empty: none.
	Command []string `json:"command,omitempty"`
	// TimeoutSeconds is how long the signal waits for Command, 1 to the grace period; 0 is
	// the grace period.
	TimeoutSeconds int `json:"timeoutSeconds,omitempty"`
	// DelaySeconds is how long the signal waits in any case, 1 to the grace period; 0: not.
	DelaySeconds int `json:"delaySeconds,omitempty"`
	// Signal is one of StopSignals; "" is what the task's image says, and else SIGTERM.
	Signal string `json:"signal,omitempty"`
}

// StopSignals returns the names of the signals that a task can be stopped with.
func StopSignals() []string { return slices.Clone(stopSignals) }

var stopSignals = []string{"SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGWINCH", "SIGRTMIN+3"}

// CommandWithin returns the command that comes before the signal, nil for none, and how
// long the signal waits for it in such a grace period. s may be nil.
func (s *Stop) CommandWithin(grace time.Duration) (command []string, timeout time.Duration) {
	if s == nil || len(s.Command) == 0 {
		return nil, 0
	}
	if t := time.Duration(s.TimeoutSeconds) * time.Second; t > 0 {
		return s.Command, min(t, grace)
	}
	return s.Command, grace
}

// Delay returns how long the signal waits in any case, in such a grace period. s may be nil.
func (s *Stop) Delay(grace time.Duration) time.Duration {
	if s == nil {
		return 0
	}
	return min(time.Duration(s.DelaySeconds)*time.Second, grace)
}

// SignalName returns the signal that the job asks for, "" for none. s may be nil.
func (s *Stop) SignalName() string {
	if s == nil {
		return ""
	}
	return s.Signal
}
