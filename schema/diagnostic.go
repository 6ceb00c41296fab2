package schema

import (
	"cmp"
	"fmt"
	"strings"
)

// Position is a place in a file of a commit. Line and Column count from 1, in
// bytes; 0 means unknown. Path is relative to the repository's root.
type Position struct {
	Path   string `json:"path"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
}

// String returns path:line:column, leaving out what is unknown.
func (p Position) String() string {
	switch {
	case p.Line == 0:
		return p.Path
	case p.Column == 0:
		return fmt.Sprintf("%s:%d", p.Path, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.Path, p.Line, p.Column)
}

// Compare orders positions by path, line and column.
func (p Position) Compare(o Position) int {
	return cmp.Or(strings.Compare(p.Path, o.Path), cmp.Compare(p.Line, o.Line), cmp.Compare(p.Column, o.Column))
}

// Severity says whether a diagnostic stops its package.
type Severity string

// The severities.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Diagnostic is one mistake of a user: where, what, what was expected, and
// what to do.
type Diagnostic struct {
	Severity Severity `json:"severity"`
	// Rule is the kind of mistake; "" only of one that an older release has stored.
	Rule Rule `json:"rule,omitempty"`
	Position
	// Field is the data path, such as job.web.task.resources.ramBytes.
	Field    string `json:"field,omitempty"`
	Message  string `json:"message"`
	Expected string `json:"expected,omitempty"`
	Hint     string `json:"hint,omitempty"`
	// Image is the image that Field names when all that it lacks is the digest of its tag,
	// as REGISTRY/NAME:TAG: whoever may ask a registry can say what to write.
	Image string `json:"image,omitempty"`
}

// Error returns "path:line:col: field: message: want expected"; the hint is
// left to whoever has a line for it.
func (d Diagnostic) Error() string {
	var b strings.Builder
	if p := d.Position.String(); p != "" {
		b.WriteString(p + ": ")
	}
	if d.Field != "" {
		b.WriteString(d.Field + ": ")
	}
	b.WriteString(d.Message)
	if d.Expected != "" {
		b.WriteString(": want " + d.Expected)
	}
	return b.String()
}

// Compare orders diagnostics by position, field and message.
func (d Diagnostic) Compare(o Diagnostic) int {
	return cmp.Or(d.Position.Compare(o.Position), strings.Compare(d.Field, o.Field), strings.Compare(d.Message, o.Message))
}
