package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestHelp holds every command to its help: one line, an example that begins
// with the command, and the operands in its usage.
func TestHelp(t *testing.T) {
	t.Parallel()
	var commands []string
	for _, c := range newRoot(stdio{}).Commands() {
		if !c.Hidden {
			commands = append(commands, c.Name())
		}
	}
	const want = "init validate test render diff explain set lsp plan comment schema vendor image secret dev master hollow pki demo status endpoints services top why events history page logs exec cp wait reconcile suspend resume restart rollback machine simulate checkpoint version completion help"
	for name := range strings.FieldsSeq(want) {
		var out, errs bytes.Buffer
		code := run(t.Context(), []string{name, "--help"}, stdio{out: &out, err: &errs})
		_, example, found := strings.Cut(out.String(), "\nExamples:\n")
		if code != exitOK || errs.Len() != 0 || !found || !strings.Contains(example, "muster "+name) || !strings.Contains(out.String(), "\n  muster "+name) {
			t.Errorf("muster %s --help: exit %d, stderr %q, no example of it in:\n%s", name, code, &errs, &out)
		}
	}
	for _, name := range commands {
		if !slices.Contains(strings.Fields(want), name) {
			t.Errorf("muster %s is not tested here", name)
		}
	}
}

// TestFlagValues: what a flag takes is one word, in help and reference; cobra takes what its text has in
// backquotes for that.
func TestFlagValues(t *testing.T) {
	t.Parallel()
	var visit func(c *cobra.Command)
	visit = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if name, _ := pflag.UnquoteUsage(f); strings.Contains(name, " ") {
				t.Errorf("%s --%s takes %q", c.CommandPath(), f.Name, name)
			}
		})
		for _, below := range c.Commands() {
			visit(below)
		}
	}
	visit(newRoot(stdio{}))
}
