package cell

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The state of a directory's cell is at a place that its path decides, that of
// a URL's one that the URL decides, wherever the command is given.
func TestDevDir(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", "/state")
	here := t.TempDir()
	if err := os.Mkdir(filepath.Join(here, "fleet"), 0o755); err != nil {
		t.Fatal(err)
	}
	dirs := func(repos ...string) []string {
		t.Helper()
		var out []string
		for _, repo := range repos {
			dir, err := devDir(repo)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, dir)
		}
		return out
	}
	urls := []string{"https://example.com/a/fleet.git", "git@example.com:a/fleet.git", "ssh://git@example.com/~/.fleet", "https://example.com/b/fleet.git", "git@example.com:fleet"}
	t.Chdir(here)
	before := dirs(urls...)
	same := dirs("fleet", "./fleet/", filepath.Join(here, "fleet"), "file://"+filepath.Join(here, "fleet"))
	t.Chdir("fleet")
	same = append(same, dirs(".")...)
	seen := map[string]string{}
	for i, dir := range dirs(urls...) {
		if dir != before[i] {
			t.Errorf("%s: %s there and %s here", urls[i], before[i], dir)
		}
		if other := seen[dir]; other != "" {
			t.Errorf("%s and %s share %s", urls[i], other, dir)
		}
		seen[dir] = urls[i]
		base := filepath.Base(dir)
		if filepath.Base(filepath.Dir(dir)) != "dev" || strings.HasPrefix(base, ".") || !strings.HasPrefix(base, "fleet") {
			t.Errorf("%s: %s", urls[i], dir)
		}
	}
	for _, dir := range same {
		if dir != same[0] {
			t.Errorf("one directory's state is at %s", same)
		}
	}
	if a, b := dirs("https://token@example.com/a/fleet.git")[0], before[0]; a != b {
		t.Errorf("who asks decides where the state is: %s, not %s", a, b)
	}
	for _, odd := range []string{"https://example.com/" + strings.Repeat("x", 300), "https://example.com/%2e%2e/", "git@h:..", "https://example.com/a b\n;rm"} {
		base := filepath.Base(dirs(odd)[0])
		if len(base) > 60 || strings.ContainsAny(base, "\n ;%") || base[0] == '.' {
			t.Errorf("%q: %q", odd, base)
		}
	}
}

func TestStateApartFromTheWorkTree(t *testing.T) {
	t.Parallel()
	for dir, want := range map[string]bool{
		"/srv/fleet": false, "/srv/fleet/state": false, "/srv/fleet/a/b": false,
		"/srv/fleet/.state": true, "/srv/fleet/a/.b/c": true, "/srv/fleet-state": true, "/srv": true, "/var/x": true,
	} {
		if err := checkApart("/srv/fleet/", dir); (err == nil) != want {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestSocketPath(t *testing.T) {
	t.Setenv("TMPDIR", "/tmp")
	short := "/var/lib/muster/dev/fleet-0123456789ab"
	if got := socketPath(short); got != short+"/link/agent.sock" || checkSocketPath(got, "x") != nil {
		t.Errorf("of a short path: %s", got)
	}
	// 107 bytes are the most.
	edge := "/" + strings.Repeat("x", maxSocketPath-1-len("/link/agent.sock"))
	if got := socketPath(edge); got != edge+"/link/agent.sock" || len(got) != 107 {
		t.Errorf("of a path that just fits: %s", got)
	}
	long := edge + "y"
	a, b := socketPath(long), socketPath(long+"y")
	if filepath.Dir(filepath.Dir(a)) != "/tmp" || a == b || checkSocketPath(a, "x") != nil {
		t.Errorf("of long paths: %s, %s", a, b)
	}
	t.Setenv("TMPDIR", long)
	err := checkSocketPath(socketPath(long), "give --data-dir")
	var input *InputError
	if !errors.As(err, &input) || !strings.Contains(err.Error(), "at most 107\nhint: give --data-dir") {
		t.Errorf("where nothing is short: %v", err)
	}
}
