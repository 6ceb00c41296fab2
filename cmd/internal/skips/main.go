package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
)

const (
	module = "github.com/musterhq/muster/"
	list   = ".ci/skips.txt"

	most  = 4 // tests that may fail by chance in one run; more have a cause in common
	times = 3 // that each of them has to pass then
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	code, err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "skips:", err)
		code = 1
	}
	stop()
	os.Exit(code) //nolint:gocritic // stop has been called
}

// run runs go test with args and returns its exit status, or 1 when a test was
// skipped that the list does not have. Tests that failed and may have failed by chance
// are run again, each alone; it returns 0 when all of them pass each time.
func run(ctx context.Context, args []string, out io.Writer) (int, error) {
	b, err := os.ReadFile(list)
	if err != nil {
		return 0, err
	}
	r := newReport(string(b), out)
	code, err := goTest(ctx, args, r)
	if err != nil {
		return 0, err
	}
	bad := r.finish()
	if code == 0 {
		return bad, nil
	}
	if bad != 0 || !r.maybeChance() {
		return code, nil
	}
	for _, f := range r.failed {
		fmt.Fprintf(out, "%s of %s failed: again, %d times, alone\n", f.test, f.pkg, times)
		if again, err := goTest(ctx, again(args, f), newReport(string(b), out)); again != 0 || err != nil {
			return code, err
		}
	}
	for _, f := range r.failed {
		fmt.Fprintf(out, "failed by chance: %s of %s, to be repaired: it passed %d times alone\n", f.test, f.pkg, times)
	}
	return 0, nil
}

// goTest runs go test with args, gives r what it says, and returns its exit status.
func goTest(ctx context.Context, args []string, r *report) (int, error) {
	c := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.Stderr = os.Stderr
	pipe, err := c.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := c.Start(); err != nil {
		return 0, err
	}
	if err := r.read(pipe); err != nil {
		return 0, errors.Join(err, c.Wait())
	}
	if err := c.Wait(); err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return max(1, exit.ExitCode()), nil
		}
		return 0, err
	}
	return 0, nil
}

// again returns args with one test in place of all packages.
func again(args []string, f failure) []string {
	isPackage := func(arg string) bool { return strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, module) }
	first := slices.IndexFunc(args, isPackage)
	if first < 0 {
		first = len(args)
	}
	last := first
	for last < len(args) && isPackage(args[last]) {
		last++
	}
	only := []string{fmt.Sprintf("-count=%d", times), "-run", "^" + f.test + "$", module + f.pkg}
	return slices.Concat(args[:first], only, args[last:])
}

// event is one line of go test -json; see go doc test2json.
type event struct {
	Action     string
	Package    string
	ImportPath string // of build events
	Test       string
	Output     string
}

// report turns events into what go test would have printed.
type report struct {
	allowed []string // "package test"
	out     io.Writer
	output  map[[2]string]*strings.Builder // by package and top-level test
	skipped []string                       // "package test"
	failed  []failure
	certain bool // something failed that no test can have failed by chance
}

// failure is a test that failed.
type failure struct {
	pkg  string // without the module
	test string // at the top
}

// maybeChance reports whether all that failed are a few tests, none of which said
// that memory is shared without a lock, or ended its process.
func (r *report) maybeChance() bool {
	return !r.certain && len(r.failed) > 0 && len(r.failed) <= most
}

// newReport returns a report that allows the tests of list.
func newReport(list string, out io.Writer) *report {
	r := &report{out: out, output: map[[2]string]*strings.Builder{}}
	for line := range strings.Lines(list) {
		if f := strings.Fields(line); len(f) >= 2 && !strings.HasPrefix(f[0], "#") {
			r.allowed = append(r.allowed, f[0]+" "+f[1])
		}
	}
	return r
}

// read takes all events from in. Lines that are no events are printed.
func (r *report) read(in io.Reader) error {
	s := bufio.NewScanner(in)
	s.Buffer(nil, 16<<20) // a test may print long lines
	for s.Scan() {
		var e event
		if err := json.Unmarshal(s.Bytes(), &e); err != nil {
			fmt.Fprintln(r.out, s.Text())
			continue
		}
		r.take(e)
	}
	if err := s.Err(); err != nil {
		return fmt.Errorf("read the output of go test: %w", err)
	}
	return nil
}

func (r *report) take(e event) {
	top, _, _ := strings.Cut(e.Test, "/")
	key := [2]string{e.Package, top}
	switch e.Action {
	case "build-output":
		r.certain = true
		fmt.Fprint(r.out, e.Output)
	case "output":
		if r.output[key] == nil {
			r.output[key] = &strings.Builder{}
		}
		r.output[key].WriteString(e.Output)
	case "skip":
		if e.Test != "" {
			r.skipped = append(r.skipped, strings.TrimPrefix(e.Package, module)+" "+e.Test)
		}
		r.done(e, key)
	case "fail":
		r.fail(e, key)
		r.done(e, key)
	case "pass":
		r.done(e, key)
	}
}

// fail notes a failure of a test, or of a package that none of its tests accounts for.
func (r *report) fail(e event, key [2]string) {
	pkg := strings.TrimPrefix(e.Package, module)
	if e.Test == "" {
		if !slices.ContainsFunc(r.failed, func(f failure) bool { return f.pkg == pkg }) {
			r.certain = true
		}
		return
	}
	if e.Test != top(key) {
		return
	}
	r.failed = append(r.failed, failure{pkg, e.Test})
	if b := r.output[key]; b != nil {
		for _, word := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: "} {
			if strings.Contains(b.String(), word) {
				r.certain = true
			}
		}
	}
}

// done prints what a test or a package left to say once it has ended.
func (r *report) done(e event, key [2]string) {
	if e.Test != top(key) {
		return // a subtest: its test is printed whole
	}
	b := r.output[key]
	delete(r.output, key)
	if b == nil {
		return
	}
	for line := range strings.Lines(b.String()) {
		switch {
		case e.Test != "" && e.Action != "fail":
		case strings.HasPrefix(line, "=== "), line == "PASS\n":
		default:
			fmt.Fprint(r.out, line)
		}
	}
}

func top(key [2]string) string { return key[1] }

// finish prints what was skipped and returns the exit status.
func (r *report) finish() int {
	var bad []string
	for _, s := range r.skipped {
		if !slices.ContainsFunc(r.allowed, func(a string) bool { return s == a || strings.HasPrefix(s, a+"/") }) {
			bad = append(bad, s)
		}
	}
	fmt.Fprintf(r.out, "skipped tests: %d, of which %d may not be\n", len(r.skipped), len(bad))
	for _, s := range bad {
		fmt.Fprintf(r.out, "%s was skipped and is not in %s\n", s, list)
	}
	return min(len(bad), 1)
}
