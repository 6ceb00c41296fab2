package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// saying is a text that users may read a command in.
type saying struct{ at, text string }

// TestHints holds every command that a text of ours asks users to type to the
// commands that there are: hints, help, what is printed, the files that init
// writes, the documentation. The command and its subcommand are there, its flags
// too, and it takes that many operands. A word after "muster" that is no command
// has to be in the list of prose.
func TestHints(t *testing.T) {
	t.Parallel()
	n := 0
	for _, s := range sayings(t, "../..") {
		for _, h := range hintsIn(s.text) {
			n++
			if err := h.check(newRoot(stdio{})); err != nil {
				t.Errorf("%s: %q: %v", s.at, h.text, err)
			}
		}
	}
	if n < 500 {
		t.Errorf("%d hints were found: are they looked for?", n)
	}
	for _, wrong := range []string{
		"run `muster statsu` now", "muster status --nope shows it", "`muster pki nope`", "`muster suspend a/b c/d`",
		"try muster wait --commits X", "`git puhs origin main`", "muster-agent --stat-dir /x", "muster quickly does",
	} {
		if !slices.ContainsFunc(hintsIn(wrong), func(h hint) bool { return h.check(newRoot(stdio{})) != nil }) {
			t.Errorf("%q passes", wrong)
		}
	}
}

// hint is a command line as a text has it.
type hint struct {
	program, text string
	exact         bool // it is marked as code, so all of it is the command
}

var (
	programs = regexp.MustCompile(`(^|[^\w./@-])(muster-agent|muster|git) (-?-?[a-z][a-z-]*)`)
	lineEnd  = regexp.MustCompile("`|\n| && | \\|\\|? |; |;$|\\)|, |: |\"|'| [0-9]?>|  |\t|…| #|\\\\|\\. |</")
	likeName = regexp.MustCompile(`^[A-Z"'<\[$~]|[/0-9]|^\.\.?$|\.\.|^(all|machine)$`)
)

// hintsIn returns the command lines of a text.
func hintsIn(text string) (out []hint) {
	for _, m := range programs.FindAllStringSubmatchIndex(text, -1) {
		rest := text[m[6]:]
		end := len(rest)
		if at := lineEnd.FindStringIndex(rest); at != nil {
			end = at[0]
		}
		before, after := text[:m[4]], rest[end:]
		exact := strings.HasSuffix(before, "`") && strings.HasPrefix(after, "`")
		out = append(out, hint{text[m[4]:m[5]], strings.TrimRight(rest[:end], ".,"), exact})
	}
	return out
}

// prose are the words that follow the name of a program where that is its name.
var prose = map[string]string{
	"muster": "acts and at binaries built called can cell chooses comes compiles config decides demands does evaluates exits finds for from gives has imports in is it itself " +
		"follows join kept keeps knows learns makes may measured must needs never not of on or process reads refuses repository restart runs says secrets shows " +
		"stops stores string takes tells that the to too uses was with without write writes wrote",
	"muster-agent": "and as does ends has in is it of on or process runs says starts version without",
	"git": "add alone and branch branches checkout clone commit config cherry-pick checkout-index daemon describe diff fetch first format-patch fsck gc has hash-object http-backend init is log merge mv prune push rebase reflog remote reset " +
		"rev-list rev-parse revert rm show show-ref stash status switch symbolic-ref tag update-index update-ref worktree " +
		"can does knows of program repository run runs with",
}

func (h hint) check(root *cobra.Command) error {
	words := strings.Fields(h.text)
	if h.program == "muster" {
		if at, _, err := root.Find(words[:1]); err == nil && at != root {
			return h.checkCommand(root, words)
		}
	}
	if strings.HasPrefix(words[0], "-") && h.program != "git" {
		if h.program == "muster" {
			return checkFlag(root, words[0])
		}
		return checkAgentFlags(words)
	}
	if !slices.Contains(strings.Fields(prose[h.program]), words[0]) {
		return fmt.Errorf("%q is no command of %s, and is not in the list of prose", words[0], h.program)
	}
	return nil
}

// checkCommand holds words to the command that they begin with.
func (h hint) checkCommand(root *cobra.Command, words []string) error {
	c := root
	for len(words) > 0 {
		i := slices.IndexFunc(c.Commands(), func(sub *cobra.Command) bool { return sub.Name() == words[0] })
		if i < 0 {
			break
		}
		c, words = c.Commands()[i], words[1:]
	}
	if c.HasSubCommands() && h.exact && len(words) > 0 && !likeName.MatchString(words[0]) && !strings.HasPrefix(words[0], "-") {
		return fmt.Errorf("%q is no command of %s", words[0], c.CommandPath())
	}
	var operands []string
	for ; len(words) > 0; words = words[1:] {
		switch word := words[0]; {
		case word == "--":
			return nil
		case strings.HasPrefix(word, "-") && len(word) > 1:
			if err := checkFlag(c, word); err != nil {
				return err
			}
			if f := c.Flag(strings.TrimLeft(word, "-")); f != nil && f.NoOptDefVal == "" && len(words) > 1 {
				words = words[1:]
			}
		case h.exact || likeName.MatchString(word):
			operands = append(operands, word)
		default:
			return nil // the sentence goes on
		}
	}
	if h.exact && len(operands) > 0 && !c.HasSubCommands() {
		return c.Args(c, operands)
	}
	return nil
}

// checkFlag errs unless c has a flag.
func checkFlag(c *cobra.Command, word string) error {
	name, _, _ := strings.Cut(strings.Trim(word, "-]"), "=")
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	letters := strings.Split(name, "")
	if strings.HasPrefix(word, "--") {
		letters = nil
	}
	none := func(letter string) bool { return c.Flags().ShorthandLookup(letter) == nil }
	if c.Flag(name) == nil && (letters == nil || slices.ContainsFunc(letters, none)) {
		return fmt.Errorf("%s has no flag %s", c.CommandPath(), word)
	}
	return nil
}

// checkAgentFlags errs for a flag that the reference of muster-agent has not,
// which a test of its own holds to be right.
func checkAgentFlags(words []string) error {
	b, err := os.ReadFile("../../docs/reference/cli.md")
	if err != nil {
		return err
	}
	_, reference, _ := strings.Cut(string(b), "<!-- generated: muster-agent -->")
	for _, word := range words {
		name, _, _ := strings.Cut(strings.Trim(word, "[]"), "=")
		if strings.HasPrefix(name, "--") && name != "--" && name != "--help" && name != "--version" && !strings.Contains(reference, "`"+name+"`") && !strings.Contains(reference, "`"+name+" ") {
			return fmt.Errorf("muster-agent has no flag %s", name)
		}
	}
	return nil
}

// sayings returns what of the module below root users may read.
func sayings(t *testing.T, root string) (out []saying) {
	t.Helper()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		scaffold := strings.Contains(name, "/scaffold/files/")
		switch base := d.Name(); {
		case d.IsDir() && (base == "testdata" || base == "bin" || base == "linkpb" || base == "decisions" || base == ".git" || base == ".tools"):
			return fs.SkipDir
		case d.IsDir() || strings.HasSuffix(base, "_test.go"):
		case filepath.Ext(base) == ".go":
			out = append(out, literals(t, name)...)
		case scaffold, filepath.Ext(base) == ".md":
			b, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			for i, line := range strings.Split(string(b), "\n") {
				out = append(out, saying{fmt.Sprintf("%s:%d", name, i+1), line})
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

var verbs = regexp.MustCompile(`%[-+#0-9.*]*[a-zA-Z]`)

// literals returns the strings of a Go file; what is joined is one string, in
// which X stands for what is not known here.
func literals(t *testing.T, name string) (out []saying) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if _, ok := n.(*ast.ImportSpec); ok {
			return false
		}
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		text, ok := joined(e)
		if ok {
			out = append(out, saying{fset.Position(n.Pos()).String(), verbs.ReplaceAllString(text, "X/1")})
		}
		return !ok
	})
	return out
}

// joined returns the text of a literal, or of several with + between them.
func joined(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(e.Value)
		return s, e.Kind == token.STRING && err == nil
	case *ast.BinaryExpr:
		one, ok := joined(e.X)
		other, too := joined(e.Y)
		if e.Op != token.ADD || !ok && !too {
			return "", false
		}
		if !ok {
			one = "X/1"
		}
		if !too {
			other = "X/1"
		}
		return one + other, true
	}
	return "", false
}
