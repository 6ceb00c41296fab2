package runtime_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/runtime"
	"github.com/musterhq/muster/nodeagent/secrets"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/sealed"
)

// marked is a secret that is in nothing else.
const marked = "Zq9-marked-plaintext-7c1"

// withSecrets gives a machine what it needs to hold secrets; kept is set to that.
func withSecrets(t testing.TB, kept **secrets.Machine) func(*config) {
	return func(c *config) {
		m, err := secrets.Open(c.host.Dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if _, err := os.Stat(m.Root()); err != nil {
				return // closed before, by another of the same directory
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
			if left, err := os.ReadDir(m.Root()); err == nil {
				t.Errorf("%s has %v", m.Root(), left)
			}
		})
		c.Secrets, *kept = m, m
	}
}

// give has the task of a get a secret.
func give(t testing.TB, m *secrets.Machine, a *schema.Assignment, name string, s schema.TaskSecret, plain string) {
	t.Helper()
	to, err := sealed.ParseRecipient(m.Recipient())
	if err != nil {
		t.Fatal(err)
	}
	text, err := sealed.Seal([]byte(plain), []sealed.Recipient{to}, "")
	if err != nil {
		t.Fatal(err)
	}
	if a.Job.Task.Secrets == nil {
		a.Job.Task.Secrets, a.Secrets = map[string]schema.TaskSecret{}, map[string]string{}
	}
	version := fmt.Sprintf("%s of %d bytes", name, len(plain))
	s.Sealed = &schema.SealedSecret{Version: version}
	a.Job.Task.Secrets[name], a.Secrets[version] = s, text
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		without []runtime.Guard
		change  func(*schema.Assignment)
		root    bool
	}{
		"isolated":         {},
		"in a user's":      {change: func(a *schema.Assignment) { a.Job.Task.Isolation = &schema.Isolation{User: true} }, root: true},
		"in a root":        {change: func(a *schema.Assignment) { a.Job.Task.Process.Root = "/" }},
		"not isolated":     {without: []runtime.Guard{runtime.Namespaces}},
		"as our user":      {without: []runtime.Guard{runtime.Users}},
		"as our user, not": {without: []runtime.Guard{runtime.Users, runtime.Namespaces}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.root {
				needRoot(t)
			}
			var kept *secrets.Machine
			m := newMachine(t, withSecrets(t, &kept))
			m.Without(c.without...)
			testSecrets(t, m, kept, c.change)
		})
	}
}

func TestSecretsContained(t *testing.T) {
	t.Parallel()
	var kept *secrets.Machine
	m := newContainerMachine(t, withSecrets(t, &kept))
	m.contained = true
	testSecrets(t, m, kept, nil)
}

// testSecrets: a task finds its secrets, with the modes that it asked for, where nobody can
// write, and none of it is left or was on disk.
func testSecrets(t *testing.T, m *machine, kept *secrets.Machine, change func(*schema.Assignment)) {
	t.Helper()
	a := shell(0, `cd "$MUSTER_SECRETS_DIR"; cat password tls/key; ls -l password tls/key; echo "env $TOKEN"
		(echo x >password) 2>/dev/null && echo WROTE; (echo x >new) 2>/dev/null && echo MADE
		trap 'cat password; ls -a; echo renewed' USR1; echo up; while :; do sleep 0.01; done`)
	give(t, kept, a, "password", schema.TaskSecret{}, marked+"-a\n")
	give(t, kept, a, "key", schema.TaskSecret{File: "tls/key", Mode: "0440"}, marked+"-bb\n")
	give(t, kept, a, "token", schema.TaskSecret{Env: "TOKEN"}, marked+"-ccc\n")
	if change != nil {
		change(a)
	}
	p, dir := m.start(a)
	says(t, dir, "\nup\n")
	out := said(t, dir)
	for _, want := range []string{marked + "-a\n" + marked + "-bb\n", "-r--------", "-r--r-----", "env " + marked + "-ccc\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("the task says %q: want %q", out, want)
		}
	}
	ours := p.Processes().UID == os.Geteuid()
	if !ours && strings.Contains(out, "MADE") {
		t.Errorf("the task says %q: it can make files among its secrets", out)
	}
	beside, err := p.Run(t.Context(), []string{"/bin/sh", "-c", `cat "$MUSTER_SECRETS_DIR/password"; echo "env $TOKEN"`}, patience)
	if want := marked + "-a\nenv " + marked + "-ccc"; err != nil || strings.TrimSpace(beside) != want {
		t.Errorf("beside the task: %q, %v: want %q", beside, err, want)
	}
	give(t, kept, a, "password", schema.TaskSecret{}, marked+"-another\n")
	renewal := nodeagent.Renewal{Changed: []string{nodeagent.GivenSecret("password")}, Signals: []string{"SIGUSR1"}}
	if err := p.Renew(a, renewal); err != nil {
		t.Fatal(err)
	}
	says(t, dir, "renewed")
	if _, out, _ := strings.Cut(said(t, dir), "\nup\n"); !strings.HasPrefix(out, marked+"-another\n") || strings.Contains(out, ".muster-new") {
		t.Errorf("renewed, the task says %q", out)
	}
	for _, name := range grep(t, m.dir, marked) {
		if filepath.Base(name) != "stdout" {
			t.Errorf("%s has it in clear", name)
		}
	}
	if len(grep(t, kept.Root(), marked)) == 0 {
		t.Error("it is not in memory either")
	}
	end(t, p)
	if left := grep(t, kept.Root(), ""); len(left) > 0 {
		t.Errorf("left in memory: %v", left)
	}
	if err := p.Renew(a, renewal); err != nil {
		t.Errorf("renewed after its end: %v", err)
	}
}

// grep returns the files below dir that have text.
func grep(t testing.TB, dir, text string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(name)
		if bytes.Contains(b, []byte(text)) {
			found = append(found, name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return found
}

// TestSecretsKilled: a keeper that is killed leaves nothing, whether an agent sees it at once
// or comes after, nor does an incarnation of which nothing is on disk; what runs keeps its own.
func TestSecretsKilled(t *testing.T) {
	t.Parallel()
	var kept *secrets.Machine
	m := newMachine(t, withSecrets(t, &kept))
	start := func(i int) (*runtime.Process, string) {
		a := shell(i, `cat "$MUSTER_SECRETS_DIR/password"; exec sleep 1000`)
		give(t, kept, a, "password", schema.TaskSecret{}, marked)
		dir := place(t, m.dir, a, 1)
		p, err := m.Start(t.Context(), dir, a)
		if err != nil {
			t.Fatal(err)
		}
		says(t, dir, marked)
		return p, dir
	}
	p, dir := start(0)
	if err := unix.Kill(keeperOf(t, dir), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wait(t, p)
	if left := grep(t, kept.Root(), ""); len(left) > 0 {
		t.Fatalf("left: %v", left)
	}
	_, lives := start(1)
	_, dead := start(2)
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(keeperOf(t, dead), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := kept.Put(filepath.Join(m.dir, "lost"), &secrets.Given{}); err != nil {
		t.Fatal(err)
	}
	m.open(withSecrets(t, &kept))
	p, _ = m.adopt(1)
	q, _ := m.adopt(2)
	wait(t, q)
	if _, err := m.Sweep(t.Context(), filepath.Join(m.dir, "tasks"), []string{lives}); err != nil {
		t.Fatal(err)
	}
	if found := grep(t, kept.Root(), marked); len(found) != 1 || !strings.HasPrefix(found[0], kept.Dir(lives)) {
		t.Errorf("in memory: %v, want what %s has", found, lives)
	}
	if list, err := os.ReadDir(kept.Root()); err != nil || len(list) != 1 {
		t.Errorf("in memory: %v, %v", list, err)
	}
	end(t, p)
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || bytes.Contains(mounts, []byte(kept.Root())) {
		t.Errorf("mounted: %s, %v", mounts, err)
	}
}

// TestSecretsRefused: what cannot be given says why, and nothing of it is left.
func TestSecretsRefused(t *testing.T) {
	t.Parallel()
	var kept *secrets.Machine
	m := newMachine(t, withSecrets(t, &kept))
	a := shell(0, "exit 0")
	give(t, kept, a, "password", schema.TaskSecret{}, marked)
	clear(a.Secrets)
	if _, err := m.Start(t.Context(), place(t, m.dir, a, 1), a); err == nil || !strings.Contains(err.Error(), "secret password: the master has not sent it") {
		t.Errorf("start: %v", err)
	}
	a = shell(1, "exit 0")
	a.Job.Task.Process.Command = []string{"/no/such/command"}
	give(t, kept, a, "password", schema.TaskSecret{}, marked)
	if _, err := m.Start(t.Context(), place(t, m.dir, a, 1), a); err == nil {
		t.Error("it runs")
	}
	if left, err := os.ReadDir(kept.Root()); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	without := newMachine(t)
	if got := without.Attributes()[schema.HasSecrets]; got != "false" {
		t.Errorf("without, the attribute is %q", got)
	}
	if _, err := without.Start(t.Context(), place(t, without.dir, a, 1), a); err == nil || !strings.Contains(err.Error(), "secrets") {
		t.Errorf("start on a machine that can hold none: %v", err)
	}
}
