package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/schema"
)

// forgetful returns a bug that is there from some time on: machines' cordons are not
// seen any more.
func forgetful(after time.Duration) *Mutant {
	blind := packages(func(o *schema.Objects) { o.Machines = nil })
	return &Mutant{Name: "cordons are forgotten after a while", Input: func(in *control.Input) {
		if in.Now.Sub(began) > after {
			blind(in)
		}
	}}
}

// TestShrink makes a history of thousands of actions that meets a bug late as
// short as it can be, and it fails for the same reason then.
func TestShrink(t *testing.T) {
	t.Parallel()
	const turns = 100
	bug := forgetful(turns * tick)
	long := Script{World: Config{Seed: 9, Machines: 3, Cut: 2, Slow: true, Jobs: "a/web,b/count"}, Actions: everything.generate(25, 3000)}
	tries := 0
	fails := func(s *Script) error { tries++; _, err := s.Play(bug); return err }
	err := fails(&long)
	if err == nil {
		t.Fatal("the bug is not found")
	}
	early := long
	early.Actions = long.Actions[:turns]
	if err := fails(&early); err != nil {
		t.Fatalf("it is found before it is there: %v", err)
	}
	x := Shrinking{Fails: fails, Tries: 150}
	short := x.Shrink(long)
	t.Logf("%d actions of %d, after %d tries:\n%s\n%s", len(short.Actions), len(long.Actions), tries, short.String(), short.Transcript(bug))
	again := fails(&short)
	if KindOf(again) != KindOf(err) {
		t.Errorf("the short one fails with %q, the long one with %q", again, err)
	}
	if len(short.Actions) > 15 {
		t.Errorf("%d actions are left, want 15 at most", len(short.Actions))
	}
	for _, s := range []string{"  1. 00:00:00.000 ", ", or no longer", "BROKEN:   " + again.Error(), "EXPECTED: a machine gets nothing new while it is cordoned"} {
		if story := short.Transcript(bug); !strings.Contains(story, s) {
			t.Errorf("the story does not say %q", s)
		}
	}
}

// TestShrinkKeeps finds the few actions that matter of many, by a rule that is
// known, and never takes another failure for the one that it looks for.
func TestShrinkKeeps(t *testing.T) {
	t.Parallel()
	matter := errors.New("task sim/a/web/2 generation 7 runs twice")
	fails := func(s *Script) error {
		turns, killed := 0, false
		for _, a := range s.Actions {
			switch {
			case a.Do == "kill-master" && turns >= 90 && turns < 100:
				killed = true
			case a.Do == "kill-task" && killed && a.N%7 == 5:
				return matter
			}
			turns += a.Turns
		}
		if len(s.Actions) < 10 && killed {
			return errors.New("another one")
		}
		return nil
	}
	for seed := range uint64(20) {
		s := Script{World: Config{Seed: seed, Machines: 20}, Actions: everything.generate(seed, 4000), Calm: true}
		if fails(&s) == nil {
			continue
		}
		x := Shrinking{Fails: fails, Tries: 3000}
		short := x.Shrink(s)
		if err := fails(&short); !errors.Is(err, matter) {
			t.Errorf("seed %d: the short one fails with %v", seed, err)
		}
		if n := len(short.Actions); n > 3 {
			t.Errorf("seed %d: %d actions are left, want 3\n%s", seed, n, short.String())
		}
	}
}

func TestKindOf(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ a, b string }{
		{"task sim/a/web/2 generation 7 runs twice", "task sim/b/pair/0 generation 131 runs twice"},
		{"the rollout stopped a/api/1, and tasks [0 1 2] of the job are down: at most 2 may be", "the rollout stopped b/api/12, and tasks [3 4] of the job are down: at most 1 may be"},
		{"left alone, the cell does not converge: job a/web: 2 are pending", "left alone, the cell does not converge: m3 is silent"},
	} {
		if diff := cmp.Diff(KindOf(errors.New(tt.a)), KindOf(errors.New(tt.b))); diff != "" {
			t.Errorf("two kinds (-first +second):\n%s", diff)
		}
	}
	if a, b := KindOf(errors.New("task a/b/1 runs twice")), KindOf(errors.New("task a/b/1 has 2 processes")); a == b {
		t.Errorf("both are %q", a)
	}
	if got := KindOf(nil); got != "" {
		t.Errorf("of none: %q", got)
	}
}

func TestParseScript(t *testing.T) {
	t.Parallel()
	want := Script{
		World: Config{Seed: 7, Machines: 3, Cut: 1, Slow: true, Jobs: "a/web,b/api"}, Calm: true,
		Actions: []Action{{Do: "scale", Job: 4, N: 2, Turns: 3}, {Do: Wait}, {Do: "cut", Machine: 2}},
	}
	got, err := ParseScript("# what it is about\n\n" + want.String())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Errorf("read back (-want +got):\n%s", diff)
	}
	for text, want := range map[string]string{
		"":                                       `no line that begins with "world"`,
		"wait\n":                                 `line 1: "wait": want "world" first`,
		"world machines=0\n":                     "line 1: 0 machines: want 1 at least",
		"world machines=1\nworld machines=1\n":   `line 2: a second "world"`,
		"world machines=1\ndance\n":              `line 2: "dance": want one of [`,
		"world machines=1\nwait turns=x\n":       "line 2: turns=x: ",
		"world machines=1\nwait hurry=1\n":       "line 2: hurry=1: unknown",
		"world machines=1 mutant=1\n":            "line 1: mutant=1: cannot be written",
		"world machines=1\ncalm\nwait turns=1\n": `line 3: "wait" after "calm"`,
	} {
		if _, err := ParseScript(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestPhrases wants a sentence for each kind of action.
func TestPhrases(t *testing.T) {
	t.Parallel()
	for _, d := range actionKinds() {
		w := New(Config{Machines: 1})
		w.chapter(Action{Do: d})
		if said := w.History(); strings.Contains(said, "%") || phrases[d] == "" {
			t.Errorf("%s is written as %q: give it a phrase in story.go", d, strings.TrimSpace(said))
		}
	}
	for d := range phrases {
		if !slices.Contains(actionKinds(), d) {
			t.Error(fmt.Sprint(d, " has a phrase and is no action"))
		}
	}
}
