package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/cmd/internal/screen"
)

// addOutput adds -o to a command that prints; the first format is the default.
func addOutput(c *cobra.Command, formats ...string) *outputFlag {
	f := &outputFlag{value: formats[0], formats: formats}
	c.Flags().VarP(f, "output", "o", "format of what is printed: "+strings.Join(formats, ", "))
	return f
}

// outputFlag is a flag with a fixed set of values.
type outputFlag struct {
	value   string
	formats []string
}

func (f *outputFlag) String() string { return f.value }

// Type names the flag's type in the help.
func (f *outputFlag) Type() string { return "format" }

// Set takes one of the formats.
func (f *outputFlag) Set(s string) error {
	if !slices.Contains(f.formats, s) {
		return fmt.Errorf("format %q: want one of %s", s, strings.Join(f.formats, ", "))
	}
	f.value = s
	return nil
}

// outputVersion is the version of what validate, test, set, diff and vendor print as JSON, which
// scripts keep: within it fields are added, and none is renamed, removed or used anew.
const outputVersion = 1

// printJSON writes v as indented JSON.
func printJSON(w io.Writer, v any) error { return writeJSON(w, v, "  ") }

// writeJSON writes v as JSON, in one line without an indent. Encoding escapes control
// characters of ASCII; what else would change a terminal is escaped here.
func writeJSON(w io.Writer, v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", indent)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(escapeJSON(b.Bytes()))
	return err
}

// escapeJSON escapes what cannot be printed in JSON: only its strings have any of that.
func escapeJSON(b []byte) []byte {
	hidden := func(r rune) bool { return r >= 0x7f && !unicode.IsPrint(r) }
	if bytes.IndexFunc(b, hidden) < 0 {
		return b
	}
	out := make([]byte, 0, len(b)+64)
	for _, r := range string(b) {
		switch {
		case !hidden(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

// table writes rows in columns, the first row being the head.
func table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		for i, cell := range r {
			if i > 0 {
				screen.Printf(t, "\t")
			}
			screen.Printf(t, "%s", cell)
		}
		screen.Printf(t, "\n")
	}
	return t.Flush()
}

// isTerminal reports whether w is a terminal that wants colour and a line that
// is written over.
func isTerminal(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && onTerminal(w)
}

// onTerminal reports whether w is a terminal.
func onTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// tamed returns w for what tasks have written: a terminal is not theirs to control.
func tamed(w io.Writer) io.Writer {
	if !onTerminal(w) {
		return w
	}
	return &screen.Tame{Out: w}
}

// columns returns how many cells the lines that are written to w may have: 0 without
// bound if all is wanted, else what COLUMNS says, or the terminal, or 80.
func columns(w io.Writer, wide bool) int {
	const most = 80
	if wide {
		return 0
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if size := windowOf(w); size != nil && size.Col > 0 {
		return int(size.Col)
	}
	return most
}

// lineCells is columns for what is read line by line: lines have a bound only on a
// terminal, or where COLUMNS says one.
func lineCells(w io.Writer, wide bool) int {
	if windowOf(w) == nil && os.Getenv("COLUMNS") == "" {
		return 0
	}
	return columns(w, wide)
}

// height returns how many lines a terminal has, 0 if w is none.
func height(w io.Writer) int {
	if size := windowOf(w); size != nil {
		return int(size.Row)
	}
	return 0
}

func windowOf(w io.Writer) *unix.Winsize {
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return nil
	}
	return size
}
