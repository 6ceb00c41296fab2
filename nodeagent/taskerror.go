package nodeagent

import "errors"

// ErrTask is in the error of a start that is the task's own fault: it asks for what is not
// there. All other errors are the machine's.
var ErrTask = errors.New("it is the task's own fault")

// taskError is an error that is ErrTask, in its own words.
type taskError struct{ error }

// TaskError returns err as one that is ErrTask, with the same text.
func TaskError(err error) error { return taskError{err} }

// Is makes it ErrTask.
func (taskError) Is(target error) bool { return target == ErrTask }

func (e taskError) Unwrap() error { return e.error }
