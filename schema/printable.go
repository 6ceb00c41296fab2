package schema

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable returns s so that it can be printed in a line of a terminal or a log: a
// character that would change what is around it is written as in a string of Go, such as
// \x1b, \n or \u202e. Names of files come from whoever may commit.
func Printable(s string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		switch {
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// Printable returns d with what can be printed: see the function.
func (d Diagnostic) Printable() Diagnostic {
	d.Path, d.Field, d.Message = Printable(d.Path), Printable(d.Field), Printable(d.Message)
	d.Expected, d.Hint = Printable(d.Expected), Printable(d.Hint)
	return d
}
