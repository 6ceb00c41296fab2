package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
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
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// table writes rows in columns, the first row being the head.
func table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
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
