package git_test

import (
	"bytes"
	"compress/zlib"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/reconciler/git"
)

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	plain := t.TempDir()
	repo, _ := newRepo(t)
	sub := filepath.Join(repo, "teams", "x")
	if err := os.MkdirAll(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	odd, _ := newRepo(t)
	run(t, odd, "config", "core.repositoryformatversion", "1")
	run(t, odd, "config", "extensions.refStorage", "reftable")
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, ".git"), []byte("nothing"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, url, problem, hint string }{
		{"no url", "", "no repository is named", "path or a URL"},
		{"no such path", filepath.Join(plain, "x"), "no such file or directory", "name the directory"},
		{"no such path by url", "file://" + filepath.Join(plain, "x"), "no such file or directory", "name the directory"},
		{"not a repository", plain, plain + " is not a git repository", "git init"},
		{"below a repository", sub, sub + " is not a git repository", "is " + repo},
		{"reftable", odd, "not supported", "plain references"},
		{"unknown scheme", "ftp://example.com/x", "ftp is not supported", "https"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := git.Open(t.Context(), git.Config{URL: tt.url, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
			wantError(t, err, tt.problem, tt.hint)
		})
	}
	if _, err := git.Open(t.Context(), git.Config{URL: broken}); err == nil || !strings.Contains(err.Error(), `does not begin with "gitdir: "`) {
		t.Errorf("Open of a broken .git file: %v", err)
	}
	if _, err := git.Open(t.Context(), git.Config{URL: "https://example.com/x"}); err == nil || !strings.Contains(err.Error(), "no directory for its store") {
		t.Errorf("Open without Dir: %v", err)
	}
}

// TestAway opens a directory that is no repository yet: Head reports what is wrong,
// until it is one.
func TestAway(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "later")
	r := open(t, git.Config{URL: dir, Away: true})
	_, err := r.Head(t.Context())
	wantError(t, err, "no such file or directory", "name the directory")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err = r.Head(t.Context())
	wantError(t, err, "is not a git repository", "git init")
	if err := git.Init(dir, "main"); err != nil {
		t.Fatal(err)
	}
	wantHead(t, r, commit(t, dir, "a.cue", "package a\n"))
}

func TestBranchErrors(t *testing.T) {
	t.Parallel()
	dir, _ := newRepo(t)
	run(t, dir, "branch", "release/1")
	_, err := open(t, git.Config{URL: dir, Branch: "trunk"}).Head(t.Context())
	wantError(t, err, `has no branch "trunk"`, "its branches: main, release/1")
	for i := range 12 {
		run(t, dir, "branch", "b"+strings.Repeat("x", i))
	}
	_, err = open(t, git.Config{URL: dir, Branch: "trunk"}).Head(t.Context())
	wantError(t, err, `has no branch "trunk"`, " and 4 more")
	run(t, dir, "symbolic-ref", "HEAD", "refs/heads/unborn")
	_, err = open(t, git.Config{URL: dir}).Head(t.Context())
	wantError(t, err, `has no branch "unborn"`, "its branches: b, ")

	empty := t.TempDir()
	run(t, empty, "init", "-q", "-b", "main")
	_, err = open(t, git.Config{URL: empty}).Head(t.Context())
	wantError(t, err, "repository "+empty+" is empty: it has no commit", `commit to branch "main"`)
}

// Damage to any object, loose or packed, is an error that names it, and other
// commits stay readable.
func TestDamage(t *testing.T) {
	t.Parallel()
	damages := map[string]func(t *testing.T, path string){
		"emptied":   func(t *testing.T, path string) { rewrite(t, path, nil) },
		"truncated": func(t *testing.T, path string) { rewrite(t, path, func(b []byte) []byte { return b[:len(b)/2] }) },
		"flipped": func(t *testing.T, path string) {
			rewrite(t, path, func(b []byte) []byte { b[len(b)/2] ^= 0x10; return b })
		},
		"longer": func(t *testing.T, path string) {
			rewrite(t, path, func(b []byte) []byte { return deflated(append(inflated(b), "more"...)) })
		},
		"of another kind": func(t *testing.T, path string) {
			rewrite(t, path, func(b []byte) []byte { return deflated(append([]byte("tag 4\x00"), "text"...)) })
		},
		"of other content": func(t *testing.T, path string) {
			rewrite(t, path, func(b []byte) []byte {
				whole := inflated(b)
				whole[len(whole)-2] ^= 1
				return deflated(whole)
			})
		},
		"of no size": func(t *testing.T, path string) {
			rewrite(t, path, func(b []byte) []byte { return deflated([]byte("blob -4\x00text")) })
		},
		"removed": func(t *testing.T, path string) {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		},
	}
	for _, rev := range []string{"HEAD", "HEAD^{tree}", "HEAD:teams", "HEAD:teams/b.cue"} {
		for name, damage := range damages {
			t.Run(rev+" "+name, func(t *testing.T) {
				t.Parallel()
				dir, first := newRepo(t)
				head := commit(t, dir, "teams/b.cue", "package b\n"+strings.Repeat("// some text to compress\n", 100))
				hash := run(t, dir, "rev-parse", rev)
				damage(t, filepath.Join(dir, ".git", "objects", hash[:2], hash[2:]))
				r := open(t, git.Config{URL: dir})
				_, err := r.Tree(t.Context(), head)
				problem := "is damaged"
				if name == "removed" {
					problem = "is missing"
				}
				wantError(t, err, problem, "fsck")
				if !strings.Contains(err.Error(), hash) {
					t.Errorf("error does not name %s: %v", hash, err)
				}
				if rev == "HEAD" {
					_, err := r.Head(t.Context())
					wantError(t, err, problem, "fsck")
				}
				if _, err := r.Tree(t.Context(), first); err != nil {
					t.Errorf("the commit before: %v", err)
				}
			})
		}
	}
}

// inflated and deflated are an object as it is, and as it is stored.
func inflated(data []byte) []byte {
	r, err := zlib.NewReader(bytes.NewReader(data))
	if err != nil {
		panic(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		panic(err)
	}
	return text
}

func deflated(text []byte) []byte {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	if _, err := w.Write(text); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func rewrite(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		data = change(data)
	} else {
		data = nil
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedCopy: an object whose own file is damaged is read from a pack that has it, too.
func TestDamagedCopy(t *testing.T) {
	t.Parallel()
	dir, _ := newRepo(t)
	head := commit(t, dir, "teams/b.cue", "package b\n"+strings.Repeat("// some text to compress\n", 100))
	hash := run(t, dir, "rev-parse", "HEAD:teams/b.cue")
	path := filepath.Join(dir, ".git", "objects", hash[:2], hash[2:])
	loose, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	run(t, dir, "repack", "-a", "-d", "-q")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	loose[len(loose)/2] ^= 0x10
	if err := os.WriteFile(path, loose, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, git.Config{URL: dir}).Tree(t.Context(), head); err != nil {
		t.Error(err)
	}
}

func TestDamagedPack(t *testing.T) {
	t.Parallel()
	dir, _ := newRepo(t)
	head := commit(t, dir, "teams/b.cue", "package b\n"+strings.Repeat("// some text to compress\n", 1000))
	run(t, dir, "gc", "-q")
	packs, err := filepath.Glob(filepath.Join(dir, ".git", "objects", "pack", "*.pack"))
	if err != nil || len(packs) != 1 {
		t.Fatalf("packs %v, %v", packs, err)
	}
	pristine, err := os.ReadFile(packs[0])
	if err != nil {
		t.Fatal(err)
	}
	for at := 12; at < len(pristine)-20; at += 7 {
		rewrite(t, packs[0], func([]byte) []byte {
			data := append([]byte(nil), pristine...)
			data[at] ^= 0x55
			return data
		})
		r := open(t, git.Config{URL: dir})
		tree, err := r.Tree(t.Context(), head)
		if err == nil && string(tree.Files["a.cue"].Data) != "package a\n" {
			t.Fatalf("byte %d: damaged data was returned", at)
		}
		if err != nil {
			wantError(t, err, "repository "+dir, "fsck")
		}
	}
}

func TestTreeErrors(t *testing.T) {
	t.Parallel()
	dir, _ := newRepo(t)
	r := open(t, git.Config{URL: dir})
	if _, err := r.Tree(t.Context(), "main"); err == nil || !strings.Contains(err.Error(), "not a full commit hash") {
		t.Errorf("Tree of a name: %v", err)
	}
	_, err := r.Tree(t.Context(), strings.Repeat("1", 40))
	wantError(t, err, "commit "+strings.Repeat("1", 40)+" is missing", "fsck")
	blob := run(t, dir, "rev-parse", "HEAD:a.cue")
	if _, err := r.Tree(t.Context(), blob); err == nil {
		t.Error("Tree of a blob")
	}
}
