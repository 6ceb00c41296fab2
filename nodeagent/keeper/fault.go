package keeper

import (
	"errors"
	"strings"
)

// commandError is the fault of the task's command, not of the machine: it is not
// there, or it is refused.
type commandError struct {
	error
	missing bool
}

// commandPrefix marks a commandError on errorFD, missingPrefix one that is missing.
const (
	commandPrefix = "command: "
	missingPrefix = "missing: "
)

// text returns what is written to errorFD.
func (e commandError) text() string {
	if e.missing {
		return commandPrefix + missingPrefix + e.Error()
	}
	return commandPrefix + e.Error()
}

// commandErrorOf returns the commandError that a text of errorFD is; false if it is
// none.
func commandErrorOf(text string) (commandError, bool) {
	text, ok := strings.CutPrefix(text, commandPrefix)
	text, missing := strings.CutPrefix(text, missingPrefix)
	return commandError{errors.New(text), missing}, ok
}
