package e2e_test

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/cmd/internal/binaries"
	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/git"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema/compile"
	"github.com/musterhq/muster/schema/compile/synthetic"
)

// follower does with a commit what a master does until the cell's state holds
// it: read the tree, compile it in children of the real binary, adopt it.
type follower struct {
	repo     *git.Repo
	compiler *compile.Compiler
	state    *model.State
	wanted   intent.Cache // as the master has it: the digests of jobs are known while their package is there
}

func (f *follower) take(b *testing.B, commit string) (writes int) {
	b.Helper()
	tree, err := f.repo.Tree(b.Context(), commit)
	if err != nil {
		b.Fatal(err)
	}
	out, err := f.compiler.Quick(b.Context(), tree)
	if err != nil || out.Partial {
		b.Fatal(out.Partial, err)
	}
	if d := compile.Diagnostics(out); len(d) > 0 {
		b.Fatal(d[0])
	}
	w, _ := reconciler.Adopt(f.state, f.wanted.Of(f.state), out, time.Unix(0, 0))
	if err := f.state.Apply(w); err != nil {
		b.Fatal(err)
	}
	if f.state.Head.Commit != commit || len(f.state.Head.Stale) > 0 {
		b.Fatalf("the head is %s, stale %v", f.state.Head.Commit, f.state.Head.Stale)
	}
	return len(w)
}

// BenchmarkCommit takes commits of a real repository of 10,000 and 50,000 jobs,
// 100 in a package, and of 10,000 that are made through three levels of libraries: the
// first, ones that change a line of one job, and ones that change no configuration. Beside the time it prints the processor time of this
// process and of the children.
func BenchmarkCommit(b *testing.B) {
	for _, jobs := range []int{10_000, 50_000} {
		b.Run(fmt.Sprint(jobs), func(b *testing.B) { benchCommits(b, synthetic.Files(jobs/100, 100)) })
	}
	b.Run("library", func(b *testing.B) { benchCommits(b, synthetic.Library(100, 100)) })
}

func benchCommits(b *testing.B, files map[string]string) {
	exe := filepath.Join(binaries.Dir(b), "muster")
	first, lines, other := commits(b, files)
	f := &follower{}
	run := func(name string, list []string, most int) {
		b.Run(name, func(b *testing.B) {
			f.take(b, list[len(list)-1]) // away from what another benchmark has left
			n, start := 0, processorTime()
			for b.Loop() {
				if writes := f.take(b, list[n%len(list)]); most > 0 && writes > most {
					b.Fatalf("%d documents are written, want at most %d", writes, most)
				}
				n++
			}
			b.ReportMetric(float64((processorTime()-start).Microseconds())/1000/float64(b.N), "cpu-ms/op")
		})
	}
	b.Run("cold", func(b *testing.B) {
		start := processorTime()
		for b.Loop() {
			repo, err := git.Open(b.Context(), git.Config{URL: first.dir, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			f.repo, f.state, f.wanted = repo, model.NewState("local"), intent.Cache{}
			f.compiler = compile.New(compile.Config{Exe: exe, Args: []string{"compile-child"}, Idle: time.Minute})
			f.take(b, first.commit)
		}
		b.ReportMetric(float64((processorTime()-start).Microseconds())/1000/float64(b.N), "cpu-ms/op")
	})
	run("line", lines, 3) // the package, the head, and the old package away
	run("unchanged", other, 1)
}

type at struct{ dir, commit string }

// commits makes a repository of files, with commits that change one line each
// and commits that change only a README.
func commits(b *testing.B, files map[string]string) (first at, lines, other []string) {
	b.Helper()
	dir := b.TempDir()
	write := func(name, text string) {
		b.Helper()
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	commit := func() string {
		b.Helper()
		gitCommand(b, dir, "add", ".")
		gitCommand(b, dir, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "change")
		return gitCommand(b, dir, "rev-parse", "HEAD")
	}
	gitCommand(b, dir, "init", "-q", "-b", "main")
	for name, text := range files {
		write(name, text)
	}
	first = at{dir, commit()}
	edited := synthetic.File(7, 3)
	for n := range 20 { // more than the compiler remembers
		write(edited, synthetic.Edit(files[edited], n))
		lines = append(lines, commit())
	}
	for n := range 10 {
		write("README.md", fmt.Sprint("edition ", n))
		other = append(other, commit())
	}
	gitCommand(b, dir, "gc", "-q")
	return first, lines, other
}

func gitCommand(b *testing.B, dir string, args ...string) string {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := cmd.CombinedOutput()
	if err != nil {
		b.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// processorTime is that of this process and of its children that have ended.
func processorTime() (sum time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if err := syscall.Getrusage(who, &u); err == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}
