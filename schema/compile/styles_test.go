package compile_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
	"github.com/musterhq/muster/schema/turns"
)

// slip is a mistake that somebody makes in the files of a company: what stands there, what
// is written in its place, and what is said of it. Files without a directory are the team's.
type slip struct {
	name  string
	file  string // "" for team's own
	edits []edit
	want  string
}

// edit replaces lines of a file. Spaces before and after them do not count.
type edit struct{ old, fresh []string }

// slips reads the part "mistakes" of a style: a line "# NAME" begins one, "@ FILE" names
// another file than the team's, "-" lines are replaced by the "+" lines after them, and "="
// lines are what is reported.
func slips(t *testing.T, text string) (out []slip) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		rest := ""
		if len(line) > 1 {
			rest = line[2:]
		}
		if line == "" {
			continue
		}
		if line[0] != '#' && len(out) == 0 {
			t.Fatalf("%q is before the first mistake", line)
		}
		if line[0] == '#' {
			out = append(out, slip{name: rest})
			continue
		}
		s := &out[len(out)-1]
		switch line[0] {
		case '@':
			s.file = rest
		case '-':
			if n := len(s.edits); n == 0 || len(s.edits[n-1].fresh) > 0 {
				s.edits = append(s.edits, edit{})
			}
			e := &s.edits[len(s.edits)-1]
			e.old = append(e.old, strings.TrimSpace(rest))
		case '+':
			e := &s.edits[len(s.edits)-1]
			e.fresh = append(e.fresh, rest)
		case '=':
			s.want += rest + "\n"
		default:
			t.Fatalf("%q is no line of a mistake", line)
		}
	}
	return out
}

// apply returns a text with the mistake.
func (s slip) apply(t *testing.T, text string) string {
	t.Helper()
	lines := strings.Split(text, "\n")
	for _, e := range s.edits {
		at := -1
		for i := range len(lines) - len(e.old) + 1 {
			same := true
			for n, old := range e.old {
				same = same && strings.TrimSpace(lines[i+n]) == old
			}
			if same && at >= 0 {
				t.Fatalf("%s: %q is there twice", s.name, e.old)
			}
			if same {
				at = i
			}
		}
		if at < 0 {
			t.Fatalf("%s: %q is not there", s.name, e.old)
		}
		indent := lines[at][:len(lines[at])-len(strings.TrimLeft(lines[at], "\t"))]
		var fresh []string
		for _, l := range e.fresh {
			if l != "" {
				l = indent + l
			}
			fresh = append(fresh, l)
		}
		lines = slices.Replace(lines, at, at+len(e.old), fresh...)
	}
	return strings.Join(lines, "\n")
}

// format writes mistakes as slips reads them.
func format(all []slip) string {
	var b strings.Builder
	for _, s := range all {
		fmt.Fprintf(&b, "# %s\n", s.name)
		if s.file != "" {
			fmt.Fprintf(&b, "@ %s\n", s.file)
		}
		for _, e := range s.edits {
			for _, l := range e.old {
				fmt.Fprintf(&b, "- %s\n", l)
			}
			for _, l := range e.fresh {
				b.WriteString(strings.TrimSuffix("+ "+l, " ") + "\n")
			}
		}
		for l := range strings.Lines(s.want) {
			b.WriteString("= " + l)
		}
	}
	return b.String()
}

// TestStyles makes the mistakes of users below the libraries of companies that do not write
// them as muster init does. Each is reported once, and "two mistakes" are two.
func TestStyles(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/styles/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no styles: %v", err)
	}
	for i, file := range files {
		if !turns.Takes(i) {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			ar, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			style(t, idling(t), file, ar)
		})
	}
}

const team = "web.cue"

func style(t *testing.T, c *compile.Compiler, file string, ar *txtar.Archive) {
	library := map[string]string{}
	for _, f := range ar.Files {
		library[f.Name] = string(f.Data)
	}
	last := len(ar.Files) - 1
	good, all := library[team], slips(t, library[ar.Files[last].Name])
	delete(library, team)
	delete(library, ar.Files[last].Name)

	together := map[string]string{}
	addTeam(together, library, "teams/good", good)
	for i, s := range all {
		if s.file == "" {
			addTeam(together, library, fmt.Sprintf("teams/t%d", i), s.apply(t, good))
		}
	}
	out := compiledTree(t, c, together)
	if said := saidOf(out, "teams/good"); said != "" {
		t.Fatalf("without a mistake:\n%s", said)
	}
	for i, s := range all {
		in, dir := out, fmt.Sprintf("teams/t%d", i)
		if s.file != "" {
			alone := map[string]string{}
			changed := maps.Clone(library)
			changed[s.file] = s.apply(t, library[s.file])
			addTeam(alone, changed, "teams/t", good)
			in, dir = compiledTree(t, c, alone), "."
		}
		got := saidOf(in, dir)
		want := 2
		if strings.HasPrefix(s.name, "two mistakes:") {
			want = 3
		}
		if n := strings.Count("\n"+got, "\n") - strings.Count("\n"+got, "\n\t"); n != want && !*update {
			t.Errorf("%s: %d are reported:\n%s", s.name, n-1, got)
		}
		if strings.Contains(got, ": "+string(schema.RuleInternal)+"\n") {
			t.Errorf("%s: it is too much for the compiler:\n%s", s.name, got)
		}
		if diff := cmp.Diff(s.want, got); diff != "" && !*update {
			t.Errorf("%s (rewrite with -update): -want +got\n%s", s.name, diff)
		}
		all[i].want = got
	}
	if *update {
		ar.Files[last].Data = []byte(format(all))
		if err := os.WriteFile(file, txtar.Format(ar), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// addTeam adds a company's files, and a team's in a directory.
func addTeam(to, library map[string]string, dir, web string) {
	to[dir+"/"+team] = web
	for name, data := range library {
		if !strings.Contains(name, "/") {
			name = dir + "/" + name
		}
		to[name] = data
	}
}

func compiledTree(t *testing.T, c *compile.Compiler, files map[string]string) schema.Compiled {
	t.Helper()
	out, err := c.Compile(t.Context(), tree(files))
	if err != nil {
		t.Fatal(err)
	}
	ruled(t, out)
	return out
}

// saidOf returns the errors of the package in a directory, or of all if it is ".", with
// positions as if the team's file were the only one.
func saidOf(c schema.Compiled, dir string) string {
	var only schema.Compiled
	for _, p := range c.Packages {
		if dir == "." || p.Dir == dir {
			only.Packages = append(only.Packages, p)
		}
	}
	all := append(compile.Diagnostics(only), slices.DeleteFunc(unresolved(c), func(d schema.Diagnostic) bool {
		return dir != "." && filepath.Dir(d.Path) != dir
	})...)
	var b strings.Builder
	for _, d := range all {
		if d.Severity != schema.Error {
			continue
		}
		fmt.Fprintf(&b, "%s: %s\n\t%s\n", d.Position, d.Rule, strings.TrimPrefix(d.Field+": "+d.Message, ": "))
		if d.Expected != "" {
			fmt.Fprintf(&b, "\twant %s\n", d.Expected)
		}
		if d.Hint != "" {
			fmt.Fprintf(&b, "\thint: %s\n", d.Hint)
		}
	}
	if dir == "." {
		dir = "teams/t"
	}
	return strings.ReplaceAll(b.String(), dir+"/", "")
}
