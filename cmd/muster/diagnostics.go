package main

import (
	"bytes"
	"io"
	"strings"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/schema"
)

// verdict is what `muster validate -o json` prints.
type verdict struct {
	Version     int                 `json:"version"`
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
// files decides nothing about the terminal: what cannot be printed is escaped.
func printDiagnostics(w io.Writer, p screen.Painter, ds []schema.Diagnostic, files map[string]schema.File) {
	for i, d := range ds {
		if i > 0 {
			screen.Printf(w, "\n")
		}
		colour := screen.Red
		if d.Severity == schema.Warning {
			colour = screen.Yellow
		}
		where := d.Position.String()
		if where != "" {
			where += ": "
		}
		field := d.Field
		if field != "" {
			field += ": "
		}
		screen.Printf(w, "%s%s %s%s\n", p.Paint(screen.Bold, where), p.Paint(colour, string(d.Severity)+":"), field, d.Message)
		printSource(w, p, d.Position, files[d.Path].Data)
		if d.Expected != "" {
			screen.Printf(w, "  want: %s\n", d.Expected)
		}
		if d.Hint != "" {
			screen.Printf(w, "  %s %s\n", p.Paint(screen.Green, "hint:"), d.Hint)
		}
	}
}

const (
	// maxCells is how wide a source line may be, in cells of a terminal.
	maxCells = 110
	// aheadCells is how much of a cut line is shown before the caret.
	aheadCells = 60
)

// printSource writes the line at pos with a caret under its column, when the
// file has it. A long line is cut around the caret.
func printSource(w io.Writer, p screen.Painter, pos schema.Position, data []byte) {
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
		screen.Printf(w, "%6d | %s\n", pos.Line, screen.Painted(screen.Head(screen.PrintableSource(line), maxCells)))
		return
	}
	before, after := screen.PrintableSource(line[:column-1]), screen.PrintableSource(line[column-1:])
	if screen.Cells(before)+screen.Cells(after) > maxCells {
		if screen.Cells(before) > aheadCells {
			before = "…" + screen.Tail(before, aheadCells)
		}
		after = screen.Head(after, maxCells-screen.Cells(before))
	}
	screen.Printf(w, "%6d | %s%s\n", pos.Line, screen.Painted(before), screen.Painted(after))
	// Tabs are kept, so that the caret stands under its column whatever a
	// terminal makes of them.
	var pad strings.Builder
	for _, r := range before {
		if r == '\t' {
			pad.WriteRune(r)
		} else {
			pad.WriteString(strings.Repeat(" ", screen.RuneCells(r)))
		}
	}
	screen.Printf(w, "       | %s%s\n", screen.Painted(pad.String()), p.Paint(screen.Red, "^"))
}
