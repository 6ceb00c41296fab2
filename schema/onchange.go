package schema

import "slices"

// OnChange says what happens to a running task when what it was given changes.
type OnChange string

// The values of OnChange.
const (
	ChangeRestart OnChange = "restart" // the task is restarted; the default, also ""
	ChangeSignal  OnChange = "signal"  // the task finds the new content, and gets a signal
	ChangeNone    OnChange = "none"    // the task finds the new content
)

// InPlace reports whether a change reaches the task while it runs.
func (o OnChange) InPlace() bool { return o == ChangeSignal || o == ChangeNone }

// SignalNamed returns the signal that a change is to send, "" for none; name is what was
// asked for.
func (o OnChange) SignalNamed(name string) string {
	switch {
	case o != ChangeSignal:
		return ""
	case name == "":
		return DefaultChangeSignal
	}
	return name
}

// DefaultChangeSignal is what a task gets when it asks for a signal, and does not
// say which.
const DefaultChangeSignal = "SIGHUP"

// ChangeSignals returns the names of the signals that a task can ask for when what it was
// given changes: those that a program can handle. SIGTERM is not one of them: it
// stops the task.
func ChangeSignals() []string { return slices.Clone(changeSignals) }

var changeSignals = []string{
	"SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGWINCH",
}
