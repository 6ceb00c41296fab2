package schema

import (
	"errors"
	"fmt"
	"strings"
)

// HintedError is an error that says what to do about it.
type HintedError struct {
	Message string
	Hint    string
	Err     error // the cause, or nil
}

// Error returns the message, and the hint on a line of its own.
func (e *HintedError) Error() string { return WithHint(e.Message, e.Hint) }

// Unwrap returns the cause.
func (e *HintedError) Unwrap() error { return e.Err }

// Hinted returns e: an error of another type that has a hint returns it in the same way.
func (e *HintedError) Hinted() *HintedError { return e }

// hinter is an error that has a hint. Its text is that of Hinted.
type hinter interface {
	error
	Hinted() *HintedError
}

// Hintf returns an error with a hint. The format may have %w, as that of fmt.Errorf.
func Hintf(hint, format string, args ...any) *HintedError {
	err := fmt.Errorf(format, args...)
	return &HintedError{Message: err.Error(), Hint: hint, Err: err}
}

// HintOf returns the text of err without its hint, and the hint: that of the first
// error with one (Hinted) which err is or wraps, "" if there is none.
func HintOf(err error) (message, hint string) {
	x, ok := errors.AsType[hinter](err)
	if !ok {
		return err.Error(), ""
	}
	e := x.Hinted()
	return strings.Replace(err.Error(), e.Error(), e.Message, 1), e.Hint
}

// WithHint returns how a message and its hint are written where there is one text for
// both. Nothing takes them apart again: who needs the hint alone asks HintOf.
func WithHint(message, hint string) string { return message + "\nhint: " + hint }
