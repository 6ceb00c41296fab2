package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"go/format"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"golang.org/x/tools/txtar"
)

var (
	hunts = flag.Int("sim.hunts", 0, "how often each bug of mutants/ is planted into the source and looked for, from other seeds each time; 0: only whether it can be planted")
	only  = flag.String("sim.only", "", "plant only the bugs of mutants/ whose names match this regular expression")
	hunt  = flag.Int("sim.hunt", 0, "look for a bug this often, say in JSON what was found, and end: how TestSource calls the test that it has built")
)

// tree is the root of the repository.
const tree = "../../.."

// planted is a bug of a file in mutants/: what it is, the error it should be
// found by, and what of the source it changes.
type planted struct {
	name    string
	text    string
	foundBy *regexp.Regexp
	changes []change
}

// change replaces the one place of a source file that reads old.
type change struct{ path, old, is string }

// parsePlanted reads a file of mutants/: a comment whose last line says
// "found by: " and a regular expression, then for each change a section with the
// path of the source file and its text, and one called "becomes".
func parsePlanted(name string, data []byte) (planted, error) {
	a := txtar.Parse(data)
	p := planted{name: name}
	text, by, ok := strings.Cut(strings.TrimSpace(string(a.Comment)), "\nfound by: ")
	if !ok || text == "" {
		return p, fmt.Errorf("%s: want a comment that says what the bug is, and a last line \"found by: REGEXP\"", name)
	}
	var err error
	p.text = strings.Join(strings.Fields(text), " ")
	if p.foundBy, err = regexp.Compile(by); err != nil {
		return p, fmt.Errorf("%s: found by: %w", name, err)
	}
	for i := 0; i < len(a.Files); i += 2 {
		if i+1 == len(a.Files) || a.Files[i+1].Name != "becomes" {
			return p, fmt.Errorf("%s: after -- %s -- want -- becomes --", name, a.Files[i].Name)
		}
		line := func(f txtar.File) string { return strings.TrimSuffix(string(f.Data), "\n") } // or a part of it
		p.changes = append(p.changes, change{a.Files[i].Name, line(a.Files[i]), line(a.Files[i+1])})
	}
	if len(p.changes) == 0 {
		return p, fmt.Errorf("%s: it changes nothing", name)
	}
	return p, nil
}

// plant returns the changed source files by path. It errs when the source has
// moved on and a bug is no longer where it was.
func (p *planted) plant() (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, c := range p.changes {
		source := out[c.path]
		if source == nil {
			var err error
			if source, err = os.ReadFile(filepath.Join(tree, c.path)); err != nil {
				return nil, fmt.Errorf("mutants/%s: %w", p.name, err)
			}
		}
		if n := bytes.Count(source, []byte(c.old)); n != 1 {
			return nil, fmt.Errorf("mutants/%s: %s has this %d times, want once: follow the code\n%s", p.name, c.path, n, c.old)
		}
		source = bytes.Replace(source, []byte(c.old), []byte(c.is), 1)
		if _, err := format.Source(source); err != nil {
			return nil, fmt.Errorf("mutants/%s: %s: %w", p.name, c.path, err)
		}
		out[c.path] = source
	}
	return out, nil
}

// overlay writes what `go build -overlay` takes to plant the bug, and returns
// its path.
func (p *planted) overlay(dir string) (string, error) {
	files, err := p.plant()
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for path, source := range files {
		to := filepath.Join(dir, p.name+"-"+strings.ReplaceAll(path, "/", "-"))
		if err := os.WriteFile(to, source, 0o600); err != nil {
			return "", err
		}
		from, err := filepath.Abs(filepath.Join(tree, path))
		if err != nil {
			return "", err
		}
		replace[from] = to
	}
	value, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, p.name+".json")
	return path, os.WriteFile(path, value, 0o600)
}

// found is what one hunt has come to.
type found struct {
	First  uint64 `json:"first"`  // seed
	Needed int    `json:"needed"` // seeds up to the one that found it; 0: none did
	Why    string `json:"why,omitempty"`
}

// goHunting is what the test does that was built with a bug.
func goHunting(times, within int) error {
	out := make([]found, 0, times)
	for i := range times {
		f := found{First: varied + *first + uint64(i)*100_000} // other histories than the fixed ones
		for n := range within {
			if err := caught(f.First+uint64(n), nil); err != nil {
				f.Needed, f.Why = n+1, err.Error()
				break
			}
		}
		out = append(out, f)
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

// huntTime is how long a bug is looked for at most: one that makes the cell
// turn for ever is found by that.
const huntTime = 10 * time.Minute

// hunt builds this test with the bug, and lets it look for it, seed after seed up
// to the first that fails, which is not made shorter. One processor is enough for
// a history: others look for other bugs meanwhile.
func (p *planted) hunt(ctx context.Context, dir string) ([]found, error) {
	overlay, err := p.overlay(dir)
	if err != nil {
		return nil, err
	}
	binary := filepath.Join(dir, p.name+".test")
	if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", binary, ".").CombinedOutput(); err != nil { //nolint:gosec // the source that is tested
		return nil, fmt.Errorf("mutants/%s does not build: %w\n%s", p.name, err, out)
	}
	defer os.Remove(binary)
	ctx, cancel := context.WithTimeout(ctx, huntTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-sim.hunt", fmt.Sprint(*hunts), "-sim.mutants", fmt.Sprint(*mutantSeeds), "-sim.steps", fmt.Sprint(*steps), "-sim.first", fmt.Sprint(*first)) //nolint:gosec // built above
	cmd.Stderr, cmd.Env = os.Stderr, append(os.Environ(), "GOMAXPROCS=1")
	out, err := cmd.Output()
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("mutants/%s: it is not found in %v", p.name, huntTime)
	}
	if err != nil {
		return nil, fmt.Errorf("mutants/%s: %w", p.name, err)
	}
	var f []found
	return f, json.Unmarshal(out, &f)
}

// TestSource plants bugs into the source, one at a time, and wants each to be
// found within a number of seeds by the median of hunts that begin elsewhere, and
// by the invariant that it should be found by in one of them at least. Without
// -sim.hunts it only looks whether the source still has the places.
func TestSource(t *testing.T) {
	t.Parallel()
	bugs := readPlanted(t)
	if len(bugs) < 20 && *only == "" {
		t.Errorf("there are %d bugs to plant, want 20 at least", len(bugs))
	}
	if *hunts == 0 {
		for _, p := range bugs {
			if _, err := p.plant(); err != nil {
				t.Error(err)
			}
		}
		return
	}
	dir := t.TempDir()
	rows := make([]row, len(bugs))
	next := make(chan int)
	var hunters sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		hunters.Go(func() {
			for i := range next {
				rows[i] = bugs[i].look(t, dir)
			}
		})
	}
	for i := range bugs {
		next <- i
	}
	close(next)
	hunters.Wait()
	printHunts(t.Output(), bugs, rows)
}

// row is what the hunts for a bug have come to.
type row struct {
	median int
	needed []int // seeds of each hunt, in order
	why    string
}

// look hunts for a bug, and fails the test if it is not found as it should be.
func (p *planted) look(t *testing.T, dir string) row {
	start := time.Now()
	f, err := p.hunt(t.Context(), dir)
	if err != nil {
		t.Error(err)
		return row{}
	}
	r, err := p.judge(f)
	if err != nil {
		t.Error(err)
	}
	t.Logf("%s: %d seeds, %s: %s", p.name, r.median, time.Since(start).Round(time.Second), r.why)
	return r
}

// printHunts prints how many seeds it took to find each bug, and all of them.
func printHunts(to io.Writer, bugs []planted, rows []row) {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "BUG\tMEDIAN\tSEEDS\tFOUND BY\n")
	var medians []int
	for i, r := range rows {
		fmt.Fprintf(table, "%s\t%d\t%v\t%s\n", bugs[i].name, r.median, r.needed, r.why)
		medians = append(medians, r.median)
	}
	slices.Sort(medians)
	fmt.Fprintf(table, "all\t%d\t%v\t\n", medians[len(medians)/2], medians)
	_ = table.Flush() // of a test's output
}

// judge returns how many seeds it took, and an error that found it; and errs if
// the median of the hunts is above the bound, or none has found it as it should.
func (p *planted) judge(f []found) (r row, err error) {
	expected := false
	for _, x := range f {
		if x.Needed == 0 {
			x.Needed = *mutantSeeds + 1
		}
		r.needed = append(r.needed, x.Needed)
		if x.Why != "" && !expected {
			expected = p.foundBy.MatchString(x.Why)
			r.why = firstLine(x.Why)
		}
	}
	slices.Sort(r.needed)
	r.median = r.needed[len(r.needed)/2]
	switch {
	case r.median > *mutantSeeds:
		err = fmt.Errorf("mutants/%s: %d seeds do not find it (%v): %s", p.name, *mutantSeeds, r.needed, p.text)
	case !expected:
		err = fmt.Errorf("mutants/%s: it is found by %q, want one that matches %q", p.name, r.why, p.foundBy)
	}
	return r, err
}

func firstLine(s string) string {
	const most = 150
	s, _, _ = strings.Cut(s, "\n")
	return s[:min(len(s), most)]
}

func readPlanted(t *testing.T) []planted {
	t.Helper()
	names, err := filepath.Glob("mutants/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	wanted := regexp.MustCompile(*only)
	var out []planted
	for _, path := range names {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		p, err := parsePlanted(strings.TrimSuffix(filepath.Base(path), ".txtar"), data)
		if err != nil {
			t.Fatal(err)
		}
		if wanted.MatchString(p.name) {
			out = append(out, p)
		}
	}
	return out
}
