package compile_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
)

// TestNewerCommitsDoNotStarve: packages that take longer than the time until the next commit
// get their turn all the same, also more than there are workers. One takes all of its time,
// the others come to an end. What a tree has no more is given up.
func TestNewerCommitsDoNotStarve(t *testing.T) {
	t.Parallel()
	files := shared(map[string]string{"teams/a/endless/p.cue": endless})
	want := []string{"teams/b"}
	for i := range 2 {
		dir := fmt.Sprintf("teams/a/p%d", i)
		busy := "import \"list\"\n\n_busy: len([for a in list.Range(0, 20000, 1) if a > 7 {a}]) > 0\n\njob"
		files[dir+"/p.cue"] = strings.Replace(sized("a", fmt.Sprintf("p%d", i), i), "job", busy, 1)
		want = append(want, dir)
	}
	slices.Sort(want)
	c := compiler(t, compile.Config{Limits: compile.Limits{CPU: 2 * time.Second}})
	commits := 0
	commit := func() (out schema.Compiled) {
		t.Helper()
		commits++
		files["teams/b/b.cue"] += "// a line\n"
		out, err := c.Quick(t.Context(), tree(files))
		if err != nil {
			t.Fatal(err)
		}
		if !out.Partial {
			return out
		}
		// Until the next commit: always less than what is endless has of processor time.
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond+time.Duration(commits)*20*time.Millisecond)
		defer cancel()
		whole, err := c.Compile(ctx, tree(files))
		if err == nil {
			return whole
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		return out
	}
	const enough = 60
	if out := commit(); !out.Partial || !slices.Equal(taken(t, out), []string{"teams/b"}) {
		t.Fatalf("the first commit is no part: %v", taken(t, out))
	}
	for out := commit(); ; out = commit() {
		if !out.Partial {
			if dirs := taken(t, out); !slices.Equal(dirs, want) || c.Flights() > 0 {
				t.Errorf("%v after %d commits, %d go on: %v", dirs, commits, c.Flights(), compile.Diagnostics(out))
			}
			break
		}
		if commits > enough {
			t.Fatalf("%d commits were not enough", enough)
		}
	}
	begin := func(line string) {
		t.Helper()
		files["teams/a/endless/p.cue"] = endless + line
		for commits = 0; c.Flights() == 0; {
			if commit(); commits > enough {
				t.Fatal("nothing goes on")
			}
		}
	}
	begin("// another\n")
	delete(files, "teams/a/endless/p.cue")
	if out := commit(); out.Partial || c.Flights() > 0 {
		t.Errorf("%d go on of what is gone: %v", c.Flights(), compile.Diagnostics(out))
	}
	begin("// once more\n")
	if c.Close(); c.Flights() > 0 {
		t.Error("something goes on after Close")
	}
}

// TestForgets: what trees had long ago is forgotten where all of them compile quickly, and
// where the work on each is ended by the next.
func TestForgets(t *testing.T) {
	t.Parallel()
	const most = 12 // 8 trees that are remembered, each with another version of one package, and what they have in common
	c := compiler(t, compile.Config{})
	files := shared(nil)
	for n := range 2 * most {
		files["teams/b/b.cue"] += "// a line\n"
		if out, err := c.Quick(t.Context(), tree(files)); err != nil || out.Partial {
			t.Fatalf("tree %d: %v, partial %t", n, err, out.Partial)
		}
		if packages, _ := c.Remembered(); packages > most {
			t.Fatalf("%d packages are remembered after %d trees", packages, n+1)
		}
	}
	c = compiler(t, compile.Config{Limits: compile.Limits{CPU: time.Second}})
	for n := range 3 {
		files["teams/a/endless/p.cue"] = endless + fmt.Sprintf("// %d\n", n)
		if out, err := c.Quick(t.Context(), tree(files)); err != nil || !out.Partial {
			t.Fatalf("tree %d: %v, partial %t", n, err, out.Partial)
		}
		if _, slow := c.Remembered(); slow != 1 {
			t.Errorf("%d slow packages are remembered after %d trees, of which the last has one", slow, n+1)
		}
	}
}

// TestUrgent: of the packages only those that are asked for are evaluated, and what is known of the others is given.
func TestUrgent(t *testing.T) {
	t.Parallel()
	files := shared(map[string]string{"teams/a/p/p.cue": sized("a", "p", 1), "teams/a/endless/p.cue": endless})
	c := compiler(t, compile.Config{Limits: compile.Limits{CPU: 2 * time.Second}})
	out, err := c.Urgent(t.Context(), tree(files), []string{"teams/b"})
	if dirs := taken(t, out); err != nil || !out.Partial || !slices.Equal(dirs, []string{"teams/b"}) {
		t.Errorf("%v, partial: %v, %v", dirs, out.Partial, err)
	}
	out, err = c.Urgent(t.Context(), tree(files), []string{"teams/a/p"})
	if dirs := taken(t, out); err != nil || !out.Partial || !slices.Equal(dirs, []string{"teams/a/p", "teams/b"}) {
		t.Errorf("%v, partial: %v, %v", dirs, out.Partial, err)
	}
}

// TestQuickTest: a test that takes long is left, and those of other packages are run.
func TestQuickTest(t *testing.T) {
	t.Parallel()
	files := shared(map[string]string{
		"teams/b/b_test.cue": "package b\n\ntest: light: {}\n",
		"teams/a/p/p.cue":    sized("a", "p", 1),
		"teams/a/p/p_test.cue": "package p\n\nimport \"list\"\n\n_r: list.Range(0, 3000, 1)\n" +
			"test: heavy: job: x: {user: \"a\", cell: \"local\", labels: n: \"\\(len([for a in _r for b in _r for c in _r if a*b*c == 7 {a}]))\"}\ntest: more: {}\n",
	})
	c := compiler(t, compile.Config{Limits: compile.Limits{CPU: 2 * time.Second}})
	results, left, err := c.QuickTest(t.Context(), tree(files))
	var said []string
	for _, r := range results {
		said = append(said, fmt.Sprintf("%s %s: %v", r.Dir, r.Name, schema.Pending(r.Diagnostics)))
	}
	if want := []string{"teams/a/p heavy: true", "teams/b light: false"}; err != nil || !left || !slices.Equal(said, want) {
		t.Errorf("%v, left: %v, %v; want %v", said, left, err, want)
	}
}
