package runtime_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

func TestRenew(t *testing.T) {
	t.Parallel()
	testRenew(t, newMachine(t))
}

func testRenew(t *testing.T, m *machine) {
	t.Helper()
	a := shell(0, `
		trap 'cat etc/app.conf new/file; stat -c "%a" etc/app.conf; ls -a | tr "\n" " "' USR1
		trap 'echo child' HUP
		(trap 'echo hup in a child' HUP USR1; while :; do sleep 0.01; done) &
		cat etc/app.conf; echo up; while :; do sleep 0.01; done`)
	live := func(content string) schema.TaskFile {
		return schema.TaskFile{Content: content, Expand: true, OnChange: schema.ChangeSignal, Signal: "SIGUSR1"}
	}
	a.Job.Task.Files = map[string]schema.TaskFile{"etc/app.conf": live("first $(MUSTER_JOB)\n"), "old": live("x"), "fixed": {Content: "x"}}
	p, dir := m.start(a)
	says(t, dir, "up")
	want := nodeagent.GivenOf(&a.Job.Task)
	if got := p.State().Given; len(got) != 2 || got["files/old"] != want["files/old"] {
		t.Errorf("was given %v, want %v", got, want)
	}
	// What a task may do with the places of its files.
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("untouched"), 0o666); err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(filepath.Dir(dir), "work")
	for _, name := range []string{".muster-new", "new"} {
		if err := os.Symlink(outside, filepath.Join(work, name)); err != nil {
			t.Fatal(err)
		}
	}
	next := *a
	job := *a.Job
	next.Job = &job
	next.Job.Task.Files = map[string]schema.TaskFile{"etc/app.conf": live("second $(MUSTER_JOB)\n"), "new/file": live("third\n"), "fixed": {Content: "x"}}
	r := nodeagent.Renewal{Changed: []string{"files/etc/app.conf", "files/new/file", "files/old"}, Signals: []string{"SIGUSR1"}}
	if err := p.Renew(&next, r); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new files", func() bool { return strings.Contains(said(t, dir), "tmp ") })
	said := said(t, dir)
	if !strings.HasPrefix(said, "first job\nup\nsecond job\nthird\n444\n") || strings.Contains(said, "child") {
		t.Errorf("says %q", said)
	}
	if _, left, _ := strings.Cut(said, "444"); strings.Contains(left, " old ") || strings.Contains(left, ".muster-new") || !strings.Contains(left, "fixed") {
		t.Errorf("has %q", left)
	}
	if b, err := os.ReadFile(outside); err != nil || string(b) != "untouched" {
		t.Errorf("outside: %q, %v", b, err)
	}
	end(t, p)
	if err := p.Renew(&next, r); err != nil {
		t.Errorf("after the end: %v", err)
	}
}
