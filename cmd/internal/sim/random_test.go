package sim

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	seeds  = flag.Int("sim.seeds", 4, "seeds of the random simulation")
	steps  = flag.Int("sim.steps", 400, "steps of each")
	first  = flag.Uint64("sim.first", 1, "first seed")
	echo   = flag.Bool("sim.echo", false, "print the history of the first seed, and end: how TestSame calls another process")
	shrink = flag.Duration("sim.shrink", 2*time.Minute, "how long the first history that fails may be made shorter")
)

// TestMain is also what this test does when it calls itself.
func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(1600) // a world is small, and makes much that lives for a turn: a fifth less than with 400
	var err error
	switch {
	case *hunt > 0:
		err = goHunting(*hunt, *mutantSeeds)
	case *echo:
		_, err = os.Stdout.WriteString(history(*first, *steps))
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// history returns the history of a seed, and how it ended.
func history(seed uint64, steps int) string {
	s := Seeded(seed, steps)
	w, err := s.Play(nil)
	return fmt.Sprintf("%s\n%v\n", w.History(), err)
}

// TestSame wants the same history of a seed byte for byte: twice in this process,
// where maps are in another order each time, and in others, where they hash
// otherwise and have other numbers of processors.
func TestSame(t *testing.T) {
	t.Parallel()
	const seed, steps = 2, 150 // with slow messages and small transactions
	want := history(seed, steps)
	if diff := cmp.Diff(want, history(seed, steps)); diff != "" {
		t.Errorf("seed %d has two histories (-first +second):\n%s", seed, diff)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, processors := range []int{1, 7} {
		cmd := exec.CommandContext(t.Context(), self, "-sim.echo", "-sim.first", fmt.Sprint(seed), "-sim.steps", fmt.Sprint(steps)) //nolint:gosec // itself
		cmd.Env = append(os.Environ(), fmt.Sprintf("GOMAXPROCS=%d", processors))
		cmd.Stderr = os.Stderr
		got, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("seed %d has another history where GOMAXPROCS is %d (-here +there):\n%s", seed, processors, diff)
		}
	}
}

// TestRandom lets anything happen at any time, and wants the cell to converge
// once it is left alone.
func TestRandom(t *testing.T) {
	t.Parallel()
	var once sync.Once
	for seed := *first; seed < *first+uint64(*seeds); seed++ { //nolint:gosec // a count
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			s := Seeded(seed, *steps)
			w, err := s.Play(nil)
			if err == nil {
				if n := w.Faults(); n*4 < s.faults() {
					t.Errorf("%d of %d faults had an effect, want a quarter", n, s.faults())
				}
				return
			}
			t.Errorf("%v\nmake sim FROM=%d SEEDS=1 STEPS=%d plays this seed again", err, seed, *steps)
			once.Do(func() { shorten(t, s, fmt.Sprintf("seed-%d", seed)) })
		})
	}
}

// faults returns how many of a script's actions are faults.
func (s *Script) faults() int {
	kinds, n := faults(), 0
	for _, a := range s.Actions {
		if kinds[a.Do] != nil {
			n++
		}
	}
	return n
}

// shorten makes a history that fails shorter, logs it, and writes it down as a
// script which TestHistories plays from then on.
func shorten(t *testing.T, s Script, name string) {
	t.Helper()
	until := time.Now().Add(*shrink)
	x := Shrinking{
		Fails: func(s *Script) error { _, err := s.Play(nil); return err },
		Tries: 5000, Done: func() bool { return time.Now().After(until) },
	}
	short := x.Shrink(s)
	path := filepath.Join(histories, name+".txt")
	_, err := short.Play(nil)
	text := fmt.Sprintf("# %s\n%s", KindOf(err), short.String())
	if err := os.MkdirAll(histories, 0o750); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Error(err)
	}
	t.Logf("of %d actions, these suffice; they are in cmd/internal/sim/%s, for the commit that fixes it\n%s", len(s.Actions), path, short.Transcript(nil))
}

// histories are scripts of what was wrong once.
const histories = "testdata/histories"

// TestHistories plays what was wrong once.
func TestHistories(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob(histories + "/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s, err := ParseScript(string(text))
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			if _, err := s.Play(nil); err != nil {
				t.Error(s.Transcript(nil))
			}
		})
	}
}
