package reference

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Section holds the part of the file at path that is called name to text. With
// update it writes the part, and what is around it stays as it is.
func Section(t *testing.T, path, name, text string, update bool) {
	t.Helper()
	b, err := os.ReadFile(path) //nolint:gosec // a page of this repository
	if err != nil && (!update || !errors.Is(err, fs.ErrNotExist)) {
		t.Fatal(err)
	}
	page := string(b)
	want, err := replace(page, name, text)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	switch {
	case page == want:
	case update:
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil { //nolint:gosec // a page that all may read
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is stale in its part %q: run make generate", path, name)
	}
}

// replace returns page with text between the marks of name.
func replace(page, name, text string) (string, error) {
	begin := fmt.Sprintf("<!-- generated: %s -->\n", name)
	end := fmt.Sprintf("<!-- end: %s -->\n", name)
	head, rest, ok := strings.Cut(page, begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", fmt.Errorf("want the lines %q and %q", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return head + begin + "\n" + strings.TrimSpace(text) + "\n\n" + end + tail, nil
}

// Commands describes a command and all below it that are not hidden, in the
// order of their names.
func Commands(root *cobra.Command) string {
	var b strings.Builder
	command(&b, root)
	return b.String()
}

func command(b *strings.Builder, c *cobra.Command) {
	fmt.Fprintf(b, "## %s\n\n", c.CommandPath())
	text := strings.TrimSpace(c.Long)
	if text == "" {
		text = strings.ToUpper(c.Short[:1]) + c.Short[1:] + "."
	}
	fmt.Fprintf(b, "    %s\n\n%s\n\n", c.UseLine(), text)
	if c.HasExample() {
		fmt.Fprintf(b, "```sh\n%s\n```\n\n", unindent(c.Example))
	}
	c.InitDefaultHelpFlag()
	if c.Flags().HasFlags() {
		flags(b, c.Flags())
	}
	if !c.HasParent() && c.HasSubCommands() {
		b.WriteString("| command | does |\n|---|---|\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(b, "| `%s` | %s |\n", sub.Name(), cell(sub.Short))
			}
		}
		b.WriteString("\n")
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			command(b, sub)
		}
	}
}

func flags(b *strings.Builder, set *pflag.FlagSet) {
	var rows strings.Builder
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		kind, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if kind != "" {
			name += " " + kind
		}
		value := f.DefValue
		if value == "0" || value == "false" {
			value = "" // of no meaning, or described in words
		}
		if value != "" {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s |\n", name, value, cell(usage))
	})
	if rows.Len() > 0 {
		fmt.Fprintf(b, "| flag | default | meaning |\n|---|---|---|\n%s\n", &rows)
	}
}

// cell makes text fit for a cell of a table.
func cell(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", `\|`)
}

// unindent takes from each line the two spaces that cobra's help wants.
func unindent(s string) string {
	var lines []string
	for line := range strings.SplitSeq(strings.TrimRight(s, "\n"), "\n") {
		lines = append(lines, strings.TrimPrefix(line, "  "))
	}
	return strings.Join(lines, "\n")
}
