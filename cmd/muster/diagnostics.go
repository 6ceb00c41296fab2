package main

import (
	"bytes"
	"fmt"
	"io"
	"strings"

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
// under the column, and the way out on a line of its own.
func printDiagnostics(w io.Writer, ds []schema.Diagnostic, files map[string]schema.File) {
	p := painter(isTerminal(w))
	for _, d := range ds {
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
		fmt.Fprintf(w, "%s%s %s%s\n", p.paint(bold, where), p.paint(colour, string(d.Severity)+":"), field, d.Message)
		printSource(w, d.Position, files[d.Path].Data)
		if d.Expected != "" {
			fmt.Fprintf(w, "  want: %s\n", d.Expected)
		}
		if d.Hint != "" {
			fmt.Fprintf(w, "  hint: %s\n", d.Hint)
		}
	}
}

// printSource writes the line at pos with a caret under its column, when the
// file has it.
func printSource(w io.Writer, pos schema.Position, data []byte) {
	lines := bytes.Split(data, []byte("\n"))
	if pos.Line < 1 || pos.Line > len(lines) || len(data) == 0 {
		return
	}
	line := strings.TrimRight(string(lines[pos.Line-1]), "\r")
	fmt.Fprintf(w, "%6d | %s\n", pos.Line, line)
	if pos.Column < 1 || pos.Column > len(line)+1 {
		return
	}
	// Tabs are kept, so that the caret stands under its column whatever a
	// terminal makes of them.
	pad := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, line[:pos.Column-1])
	fmt.Fprintf(w, "       | %s^\n", pad)
}

// githubEscape is GitHub's escaping of workflow commands' data.
var githubEscape = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")

// printGitHub writes ds as annotations of a GitHub workflow.
func printGitHub(w io.Writer, ds []schema.Diagnostic) {
	for _, d := range ds {
		msg := d.Message
		if d.Field != "" {
			msg = d.Field + ": " + msg
		}
		if d.Expected != "" {
			msg += "\nwant: " + d.Expected
		}
		if d.Hint != "" {
			msg += "\nhint: " + d.Hint
		}
		fmt.Fprintf(w, "::%s file=%s,line=%d,col=%d::%s\n", d.Severity, githubEscape.Replace(d.Path), d.Line, d.Column,
			strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A").Replace(msg))
	}
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
