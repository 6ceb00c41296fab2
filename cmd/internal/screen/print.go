package screen

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/musterhq/muster/schema"
)

// Printf writes to people what the format says. Arguments decide nothing about a terminal:
// whatever they come from, such as the name of a file of whoever may commit, of each all
// control characters, signs that change the direction of text, and bytes that are no text
// are written as in a string of Go. The format is ours, and is written as it is; so is
// Painted. What cannot be written is dropped: see Fprintf.
func Printf(w io.Writer, format string, args ...any) {
	_ = Fprintf(w, format, args...) // whoever has to know uses Fprintf
}

// Fprintf is Printf with the error of w.
func Fprintf(w io.Writer, format string, args ...any) error {
	for i, a := range args {
		switch a.(type) {
		case int, bool: // a width may be among them
		default:
			args[i] = printable{a}
		}
	}
	_, err := fmt.Fprintf(w, format, args...)
	return err
}

// printable is an argument that is written with what can be printed.
type printable struct{ arg any }

// Format writes the argument as fmt would, and then escapes it.
func (p printable) Format(s fmt.State, verb rune) {
	if text, ok := p.arg.(Painted); ok {
		_, _ = io.WriteString(s, string(text)) // s keeps the error
		return
	}
	_, _ = io.WriteString(s, Printable(fmt.Sprintf(fmt.FormatString(s, verb), p.arg)))
}

// Printable returns s as it is printed in a line: see schema.Printable.
func Printable(s string) string { return schema.Printable(s) }

// PrintableLines is Printable for lines of text that is laid out, or of files: their ends and
// tabs stay.
func PrintableLines(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(PrintableSource(strings.TrimSuffix(line, "\n")) + "\n")
	}
	return b.String()
}

// PrintableSource is Printable for a line of a file: its tabs stay.
func PrintableSource(line string) string {
	parts := strings.Split(line, "\t")
	for i := range parts {
		parts[i] = Printable(parts[i])
	}
	return strings.Join(parts, "\t")
}

// spaced returns s in one line, as it is printed: ends of lines and tabs are spaces.
func spaced(s string) string { return Printable(whiteSpace.Replace(s)) }

var whiteSpace = strings.NewReplacer("\r\n", " ", "\n", " ", "\t", " ")

// Error returns what is printed of an error: of several that were joined, each in lines of its
// own, and so a hint.
func Error(err error) Painted {
	text := err.Error()
	if x, ok := err.(interface{ Unwrap() []error }); ok {
		var parts, lines []string
		for _, e := range x.Unwrap() {
			parts, lines = append(parts, e.Error()), append(lines, string(Error(e)))
		}
		if strings.Join(parts, "\n") == text {
			return Painted(strings.Join(lines, "\n"))
		}
	}
	if _, hint := schema.HintOf(err); hint != "" {
		if before, ok := strings.CutSuffix(text, schema.WithHint("", hint)); ok {
			return Painted(schema.WithHint(Printable(before), Printable(hint)))
		}
	}
	if inner := errors.Unwrap(err); inner != nil {
		if before, ok := strings.CutSuffix(text, inner.Error()); ok {
			return Painted(Printable(before)) + Error(inner)
		}
	}
	return Painted(Printable(text))
}

// Painted is text that is printed as it is: what is not ours in it has been made printable.
type Painted string

// Painter colours text when it is true.
type Painter bool

// The colours, as ANSI SGR parameters.
const (
	Bold   = "1"
	Red    = "31"
	Green  = "32"
	Yellow = "33"
)

// Paint returns s, as it is printed, in a colour.
func (p Painter) Paint(sgr, s string) Painted { return p.in(sgr, Printable(s)) }

// PaintSource is Paint for a line of a file: its tabs stay.
func (p Painter) PaintSource(sgr, line string) Painted { return p.in(sgr, PrintableSource(line)) }

func (p Painter) in(sgr, s string) Painted {
	if !p || s == "" {
		return Painted(s)
	}
	return Painted("\x1b[" + sgr + "m" + s + "\x1b[0m")
}
