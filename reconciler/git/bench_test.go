package git_test

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/reconciler/git"
)

// manyFiles makes a repository of 5,000 files of 1 KiB in 100 directories.
func manyFiles(b *testing.B) (dir, head string) {
	b.Helper()
	dir = b.TempDir()
	if err := git.Init(dir, "main"); err != nil {
		b.Fatal(err)
	}
	for i := range 5000 {
		text := fmt.Sprintf("package p%d\n", i) + strings.Repeat("// one line of thirty-two bytes.\n", 32)
		path := filepath.Join(dir, fmt.Sprintf("teams/t%02d/f%02d.cue", i%100, i/100))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	head, err := git.Commit(dir, git.Change{Message: "many", All: true, Author: "a", When: when})
	if err != nil {
		b.Fatal(err)
	}
	return dir, head
}

func benchOpen(b *testing.B, dir string) *git.Repo {
	b.Helper()
	r, err := git.Open(b.Context(), git.Config{URL: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	return r
}

func benchTree(b *testing.B, r *git.Repo, head string) {
	b.Helper()
	if tree, err := r.Tree(b.Context(), head); err != nil || len(tree.Files) != 5000 {
		b.Fatal(len(tree.Files), err)
	}
}

// BenchmarkTreeCold opens the repository and reads 5,000 files.
func BenchmarkTreeCold(b *testing.B) {
	dir, head := manyFiles(b)
	b.Run("loose", func(b *testing.B) {
		for b.Loop() {
			benchTree(b, benchOpen(b, dir), head)
		}
	})
	run(b, dir, "gc", "-q")
	b.Run("packed", func(b *testing.B) {
		for b.Loop() {
			benchTree(b, benchOpen(b, dir), head)
		}
	})
}

// BenchmarkTreeWarm reads the same 5,000 files again.
func BenchmarkTreeWarm(b *testing.B) {
	dir, head := manyFiles(b)
	r := benchOpen(b, dir)
	benchTree(b, r, head)
	for b.Loop() {
		benchTree(b, r, head)
	}
}

// BenchmarkTreeOneChanged reads 5,000 files of which one differs from the
// commit before.
func BenchmarkTreeOneChanged(b *testing.B) {
	dir, _ := manyFiles(b)
	var heads []string
	for i := range 10 {
		change := git.Change{Message: "one", Files: map[string][]byte{"teams/t00/f00.cue": fmt.Appendf(nil, "package p // %d\n", i)}, Author: "a", When: when}
		head, err := git.Commit(dir, change)
		if err != nil {
			b.Fatal(err)
		}
		heads = append(heads, head)
	}
	r, i := benchOpen(b, dir), 0
	benchTree(b, r, heads[0])
	for b.Loop() {
		i++
		benchTree(b, r, heads[i%len(heads)])
	}
}

// BenchmarkHead looks for the head of a local repository.
func BenchmarkHead(b *testing.B) {
	dir, head := manyFiles(b)
	r := benchOpen(b, dir)
	for b.Loop() {
		if got, err := r.Head(b.Context()); err != nil || got != head {
			b.Fatal(got, err)
		}
	}
}
