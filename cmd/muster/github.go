package main

import (
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/schema"
)

// githubData and githubProperty escape what follows the second :: of a workflow
// command, and the values of its properties.
var (
	githubData     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	githubProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// printGitHub writes what is wrong as annotations of a GitHub workflow. Their
// paths are relative to the directory in which muster was called, which is the
// root of the check-out in a workflow.
func printGitHub(w io.Writer, c *compiledRepo) {
	for _, d := range c.diagnostics {
		var at []string
		if d.Path != "" {
			at = append(at, "file="+githubProperty.Replace(c.path(d.Path)))
			if d.Line > 0 {
				at = append(at, fmt.Sprintf("line=%d", d.Line))
			}
			if col := c.column(d.Position, utf8.RuneCountInString); col > 0 {
				at = append(at, fmt.Sprintf("col=%d", col))
			}
		}
		at = append(at, "title="+githubProperty.Replace("muster: "+string(d.Rule)))
		text := d.Message
		if d.Field != "" {
			text = d.Field + ": " + text
		}
		screen.Printf(w, "::%s %s::%s\n", d.Severity, strings.Join(at, ","), githubData.Replace(withAdvice(text, d)))
	}
}

// withAdvice adds to a message what was expected and what to do, on lines of
// their own.
func withAdvice(text string, d schema.Diagnostic) string {
	text = screen.Printable(text)
	if d.Expected != "" {
		text += "\nwant: " + screen.Printable(d.Expected)
	}
	if d.Hint != "" {
		text = schema.WithHint(text, screen.Printable(d.Hint))
	}
	return text
}

// path returns the path of a file of the repository as seen from the directory
// in which muster was called.
func (c *compiledRepo) path(name string) string {
	if dir := filepath.ToSlash(filepath.Clean(c.dir)); filepath.IsLocal(c.dir) {
		return path.Join(dir, name)
	}
	return name
}

// column returns the column of a position, counted in the units that size
// counts, from 1; 0 if it is unknown.
func (c *compiledRepo) column(pos schema.Position, size func(string) int) int {
	if pos.Line < 1 || pos.Column < 1 {
		return 0
	}
	lines := strings.SplitN(string(c.tree.Files[pos.Path].Data), "\n", pos.Line+1)
	if pos.Line > len(lines) || pos.Column > len(lines[pos.Line-1])+1 {
		return pos.Column
	}
	return 1 + size(lines[pos.Line-1][:pos.Column-1])
}

// utf16Len counts the UTF-16 code units of s.
func utf16Len(s string) int { return len(utf16.Encode([]rune(s))) }
