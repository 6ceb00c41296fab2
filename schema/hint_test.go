package schema_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/musterhq/muster/schema"
)

// TestHintOf: a hint is found within what wraps it, and the text around it stays.
func TestHintOf(t *testing.T) {
	t.Parallel()
	hinted := schema.Hintf("free some", "disk: %w", io.ErrShortWrite)
	taken := &schema.TakenError{Machine: "m1", Why: "it has left", Hint: "rename it"}
	for _, tt := range []struct {
		err           error
		message, hint string
	}{
		{hinted, "disk: short write", "free some"},
		{fmt.Errorf("open x: %w", hinted), "open x: disk: short write", "free some"},
		{fmt.Errorf("open x: %w (again)", hinted), "open x: disk: short write (again)", "free some"},
		{errors.Join(io.EOF, hinted), "EOF\ndisk: short write", "free some"},
		{fmt.Errorf("set x: %w", taken), "set x: " + taken.Hinted().Message, taken.Hinted().Hint},
		{io.EOF, "EOF", ""},
		{errors.New("a line\nhint: that is only text"), "a line\nhint: that is only text", ""},
	} {
		if message, hint := schema.HintOf(tt.err); message != tt.message || hint != tt.hint {
			t.Errorf("%q: message %q, hint %q; want %q, %q", tt.err, message, hint, tt.message, tt.hint)
		}
	}
	if !errors.Is(hinted, io.ErrShortWrite) || hinted.Error() != "disk: short write\nhint: free some" {
		t.Errorf("%q does not wrap its cause, or does not end in its hint", hinted)
	}
}
