package model

// NotFoundError says that a cell has nothing of what a group names.
type NotFoundError struct {
	Message string
	Hint    string
}

func (e *NotFoundError) Error() string { return e.Message }

// NotFound returns a NotFoundError; the hint says what to do.
func NotFound(message, hint string) *NotFoundError { return &NotFoundError{message, hint} }
