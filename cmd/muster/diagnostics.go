package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/musterhq/muster/schema"
)

// verdict is what `muster validate -o json` prints.
type verdict struct {
	Valid       bool                `json:"valid"`
	Diagnostics []schema.Diagnostic `json:"diagnostics"`
}

// count returns the number of errors and of warnings in ds.
func count(ds []schema.Diagnostic) (errs, warnings int) {
	for _, d := range ds {
		if d.Severity == schema.Error {
			errs++
		} else {
			warnings++
		}
	}
	return errs, warnings
}

// printDiagnostics writes ds for people: each with its source line, a caret
// under the column, and the way out on a line of its own. Whoever wrote the
// files decides nothing about the terminal: what cannot be printed is replaced.
func printDiagnostics(w io.Writer, p painter, ds []schema.Diagnostic, files map[string]schema.File) {
	for i, d := range ds {
		if i > 0 {
			fmt.Fprintln(w)
		}
		colour := red
		if d.Severity == schema.Warning {
			colour = yellow
		}
		where := d.Position.String()
		if where != "" {
			where += ": "
		}
		field := d.Field
		if field != "" {
			field += ": "
		}
		fmt.Fprintf(w, "%s%s %s%s\n", p.paint(bold, printable(where)), p.paint(colour, string(d.Severity)+":"), printable(field), printable(d.Message))
		printSource(w, p, d.Position, files[d.Path].Data)
		if d.Expected != "" {
			fmt.Fprintf(w, "  want: %s\n", printable(d.Expected))
		}
		if d.Hint != "" {
			fmt.Fprintf(w, "  %s %s\n", p.paint(green, "hint:"), printable(d.Hint))
		}
	}
}

// printable replaces what would move the cursor or not be seen.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return utf8.RuneError
	}, s)
}

const (
	// maxCells is how wide a source line may be, in cells of a terminal.
	maxCells = 110
	// aheadCells is how much of a cut line is shown before the caret.
	aheadCells = 60
)

// printSource writes the line at pos with a caret under its column, when the
// file has it. A long line is cut around the caret.
func printSource(w io.Writer, p painter, pos schema.Position, data []byte) {
	lines := bytes.Split(data, []byte("\n"))
	if pos.Line < 1 || pos.Line > len(lines) || len(data) == 0 {
		return
	}
	line := strings.TrimPrefix(strings.TrimRight(string(lines[pos.Line-1]), "\r"), "\ufeff")
	column := pos.Column
	if pos.Line == 1 && len(line) < len(lines[0]) && column > 3 && bytes.HasPrefix(data, []byte("\ufeff")) {
		column -= 3 // the mark is no part of the line
	}
	if column < 1 || column > len(line)+1 {
		fmt.Fprintf(w, "%6d | %s\n", pos.Line, head(printable(line), maxCells))
		return
	}
	before, after := printable(line[:column-1]), printable(line[column-1:])
	if cells(before)+cells(after) > maxCells {
		if cells(before) > aheadCells {
			before = "…" + tail(before, aheadCells)
		}
		after = head(after, maxCells-cells(before))
	}
	fmt.Fprintf(w, "%6d | %s%s\n", pos.Line, before, after)
	// Tabs are kept, so that the caret stands under its column whatever a
	// terminal makes of them.
	var pad strings.Builder
	for _, r := range before {
		if r == '\t' {
			pad.WriteRune(r)
		} else {
			pad.WriteString(strings.Repeat(" ", runeCells(r)))
		}
	}
	fmt.Fprintf(w, "       | %s%s\n", pad.String(), p.paint(red, "^"))
}

// head returns the beginning of s that fits n cells, with a mark where it is
// cut.
func head(s string, n int) string {
	for i, r := range s {
		if n -= runeCells(r); n < 0 {
			return s[:i] + "…"
		}
	}
	return s
}

// tail returns the end of s that fits n cells.
func tail(s string, n int) string {
	for i := len(s); i > 0; {
		r, size := utf8.DecodeLastRuneInString(s[:i])
		if n -= runeCells(r); n < 0 {
			return s[i:]
		}
		i -= size
	}
	return s
}

// cells returns the width of s on a terminal; a tab counts as four.
func cells(s string) (n int) {
	for _, r := range s {
		n += runeCells(r)
	}
	return n
}

// runeCells returns the width of a character: most have one cell, marks that join
// the one before have none, and those of East Asia and emoji have two (Unicode
// Standard Annex 11, the ranges that are wide throughout).
func runeCells(r rune) int {
	switch {
	case r == '\t':
		return 4
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}

var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x1100, Hi: 0x115f, Stride: 1},
		{Lo: 0x2e80, Hi: 0x303e, Stride: 1},
		{Lo: 0x3041, Hi: 0x4dbf, Stride: 1},
		{Lo: 0x4e00, Hi: 0xa4cf, Stride: 1},
		{Lo: 0xa960, Hi: 0xa97f, Stride: 1},
		{Lo: 0xac00, Hi: 0xd7a3, Stride: 1},
		{Lo: 0xf900, Hi: 0xfaff, Stride: 1},
		{Lo: 0xfe30, Hi: 0xfe6f, Stride: 1},
		{Lo: 0xff01, Hi: 0xff60, Stride: 1},
		{Lo: 0xffe0, Hi: 0xffe6, Stride: 1},
	},
	R32: []unicode.Range32{
		{Lo: 0x17000, Hi: 0x18aff, Stride: 1},
		{Lo: 0x1b000, Hi: 0x1b2ff, Stride: 1},
		{Lo: 0x1f300, Hi: 0x1f64f, Stride: 1},
		{Lo: 0x1f680, Hi: 0x1f6ff, Stride: 1},
		{Lo: 0x1f900, Hi: 0x1f9ff, Stride: 1},
		{Lo: 0x1fa70, Hi: 0x1faff, Stride: 1},
		{Lo: 0x20000, Hi: 0x3fffd, Stride: 1},
	},
}

// painter colours text when it is true.
type painter bool

// The colours, as ANSI SGR parameters.
const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
)

func (p painter) paint(sgr, s string) string {
	if !p || s == "" {
		return s
	}
	return "\x1b[" + sgr + "m" + s + "\x1b[0m"
}
