package schema

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable returns s so that it can be printed in a line of a terminal or a log: a
// character that would change what is around it, and a byte that is of none, is written as
// in a string of Go, such as \x1b, \n, \u202e or \xff. Names of files come from whoever may
// commit. What Printable returns it returns unchanged.
func Printable(s string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
		s = s[n:]
	}
	return b.String()
}

// Printable returns d with what can be printed: see the function.
func (d Diagnostic) Printable() Diagnostic {
	d.Path, d.Field, d.Message = Printable(d.Path), Printable(d.Field), Printable(d.Message)
	d.Expected, d.Hint = Printable(d.Expected), Printable(d.Hint)
	return d
}
