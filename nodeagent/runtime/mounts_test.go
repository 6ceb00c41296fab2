package runtime_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/runtime"
	"github.com/musterhq/muster/schema"
)

// withVolumes gives a machine two directories for tasks: writable, and readable.
func withVolumes(t testing.TB) func(*config) {
	t.Helper()
	return func(c *config) {
		if c.Images == nil {
			c.Images = images{}
		}
		c.Volumes = map[string]runtime.Volume{"writable": {Path: sharedDir(t)}, "readable": {Path: sharedDir(t), ReadOnly: true}}
	}
}

// sharedDir makes a directory of the machine to which anybody may write.
func sharedDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o777), os.WriteFile(filepath.Join(dir, "there"), []byte("shared\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// packageOf makes a package with a program, a file that a task would like to have more
// rights by, and one that only its owner may read.
func packageOf(t *testing.T) schema.Digest {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "package")
	bin := filepath.Join(dir, "bin")
	if err := errors.Join(os.MkdirAll(bin, 0o755), os.WriteFile(filepath.Join(bin, "tool"), []byte("#!/bin/sh\necho tool $1\n"), 0o755), //nolint:gosec // a program
		os.WriteFile(filepath.Join(dir, "su"), nil, 0o755), os.Chmod(filepath.Join(dir, "su"), 0o755|os.ModeSetuid), os.Chmod(filepath.Dir(dir), 0o755)); err != nil { //nolint:gosec // likewise
		t.Fatal(err)
	}
	return schema.Digest(dir)
}

func TestPackages(t *testing.T) {
	t.Parallel()
	m := newMachine(t, withVolumes(t))
	m.needNamespaces(t)
	testPackages(t, m)
}

// testPackages: a package is at its path, whether the root directory has that or not, and
// nobody can write to it, nor get rights by it.
func testPackages(t *testing.T, m *machine) {
	t.Helper()
	digest := packageOf(t)
	a := shell(0, `
		/opt/some/tool/bin/tool 1; /new/bin/tool 2; /usr/local/tool/bin/tool 3
		for d in /opt/some/tool /new /usr/local/tool; do (echo x >$$d/new) 2>/dev/null && echo wrote to $$d; done
		(echo x >/opt/some/other) 2>/dev/null && [ $(grep -c . /proc/self/uid_map) != 3 ] && echo wrote beside
		pwd; ls /bin/sh /usr/bin/env
		grep -c ' /new ro,.*nosuid' /proc/self/mountinfo
		stat -c %u:%a /new/bin`)
	for i, path := range []string{"/opt/some/tool", "/new", "/usr/local/tool"} {
		a.Job.Task.Packages = append(a.Job.Task.Packages, schema.TaskPackage{Name: string(rune('a' + i)), From: "https://x/y", Digest: digest, Path: path})
	}
	owner := "0"
	want := "tool 1\ntool 2\ntool 3\n/muster/work\n/bin/sh\n/usr/bin/env\n1\n" + owner + ":755\n"
	if m.contained {
		want = strings.ReplaceAll(want, "/usr/bin/env\n", "")
	}
	if m.by == schema.Runsc { // which lists no nosuid: no program of its containers gets rights
		want = strings.ReplaceAll(want, "1\n"+owner, "0\n"+owner)
	}
	p, dir := m.start(a)
	wait(t, p)
	got := said(t, dir)
	if os.Geteuid() != 0 {
		want = strings.ReplaceAll(want, "0:755", "") // its own, whoever it is
		got = got[:min(len(got), len(want)-1)] + "\n"
	}
	if d := cmp.Diff(want, got); d != "" {
		b, _ := os.ReadFile(filepath.Join(dir, "stderr"))
		t.Errorf("-want +got\n%s%s", d, b)
	}
	if entries, err := os.ReadDir(string(digest)); err != nil || len(entries) != 2 {
		t.Errorf("the package has %v, %v", entries, err)
	}
}

func TestVolumes(t *testing.T) {
	t.Parallel()
	m := newMachine(t, withVolumes(t))
	m.needNamespaces(t)
	testVolumes(t, m)
}

// testVolumes: memory has its size and is empty at each start, and a directory of the
// machine is what all tasks share, for those who write as for those who only read.
func testVolumes(t *testing.T, m *machine) {
	t.Helper()
	a := shell(0, `
		cat /w/there; echo $N >/w/from; echo x >/var/lib/r/x 2>/dev/null || echo read-only; echo x >/deep/er/ro/x 2>/dev/null || echo read-only
		ls /mem /tmp; echo x >/mem/x; echo x >/tmp/x
		head -c 2000000 /dev/zero >/mem/large 2>/dev/null || echo full
		stat -f -c %T /mem /tmp`)
	a.Job.Task.Volumes = map[string]schema.TaskVolume{
		"w": {Path: "/w", Shared: "writable"}, "r": {Path: "/var/lib/r", Shared: "writable", ReadOnly: true}, "ro": {Path: "/deep/er/ro", Shared: "readable", ReadOnly: true},
		"mem": {Path: "/mem", TmpBytes: 1 << 20}, "tmp": {Path: "/tmp", TmpBytes: 1 << 20},
	}
	for n := range 2 {
		a.Job.Task.Env = map[string]string{"N": string(rune('1' + n))}
		a.Generation = uint64(n + 1)
		p, dir := m.start(a)
		wait(t, p)
		if d := cmp.Diff("shared\nread-only\nread-only\n/mem:\n\n/tmp:\nfull\ntmpfs\ntmpfs\n", said(t, dir)); d != "" {
			b, _ := os.ReadFile(filepath.Join(dir, "stderr"))
			t.Errorf("start %d: -want +got\n%s%s", n+1, d, b)
		}
		if b, err := os.ReadFile(filepath.Join(m.VolumePath("writable"), "from")); err != nil || string(b) != a.Job.Task.Env["N"]+"\n" {
			t.Errorf("start %d: on the machine: %q, %v", n+1, b, err)
		}
	}
}

// TestVolumePropagation: what the machine mounts in a volume later a task does not see.
func TestVolumePropagation(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, contained := range []bool{false, true} {
		m := newContainerMachine(t, withVolumes(t))
		m.contained = contained
		a := shell(0, `echo ready; until [ -e /v/go ]; do sleep 0.05; done; ls /v/sub; grep -c shared: /proc/self/mountinfo`)
		a.Job.Task.Volumes = map[string]schema.TaskVolume{"v": {Path: "/v", Shared: "writable"}}
		sub := filepath.Join(m.VolumePath("writable"), "sub")
		if err := os.Mkdir(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		p, dir := m.start(a)
		if err := unix.Mount("tmpfs", sub, "tmpfs", 0, "size=64k"); err != nil {
			t.Fatal(err)
		}
		err := errors.Join(os.WriteFile(filepath.Join(sub, "secret"), nil, 0o644), os.WriteFile(filepath.Join(m.VolumePath("writable"), "go"), nil, 0o644))
		wait(t, p)
		if err = errors.Join(err, unix.Unmount(sub, 0)); err != nil {
			t.Error(err)
		}
		if got := said(t, dir); got != "ready\n0\n" {
			t.Errorf("contained %v: says %q", contained, got)
		}
	}
}

// TestMountsRefused: what is in the way of a mount is the task's fault, and says so.
func TestMountsRefused(t *testing.T) {
	t.Parallel()
	m := newContainerMachine(t, withVolumes(t))
	for i, c := range []struct {
		path      string
		contained bool
		want      string
	}{
		{"/etc/passwd", false, "/etc/passwd is no directory"},
		{"/etc/passwd/x", true, "/etc/passwd of the image"},
		{"/bin/sh", true, "/bin/busybox of the image: it is no directory"},
		{"/bin/sh/x/y", true, "/bin/busybox of the image: it is no directory"},
	} {
		a := shell(i, "true")
		if c.contained {
			contained(a)
		}
		a.Job.Task.Volumes = map[string]schema.TaskVolume{"v": {Path: c.path, TmpBytes: 1 << 20}}
		dir := place(t, m.dir, a, 1)
		_, err := m.Start(t.Context(), dir, a)
		if err == nil || !errors.Is(err, nodeagent.ErrTask) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.path, err, c.want)
		}
	}
}

// TestMountsBelowLinks: what is mounted on a path with links of the image is where these lead
// within the image, and nowhere else.
func TestMountsBelowLinks(t *testing.T) {
	t.Parallel()
	needRoot(t)
	outside := "/opt/muster-" + rand.Text() // of the machine, which must not have it then
	links := map[string]string{
		"run": "", "srv/data": "", // directories
		"lib": "usr/lib", "var/run": "/run", "far": "/srv/../../../../srv/./data/", "twice": "far/deep", "up": "../../../..",
		"machine": outside, "a": "b", "b": "/a", "own": "/muster", "kernel": "var/../sys/kernel", "same": "srv/data",
	}
	all := images{busyboxImage: hostile(t, func(string) error { return nil }), "test/links": hostile(t, func(layer string) (err error) {
		for name, to := range links {
			at := filepath.Join(layer, name)
			err = errors.Join(err, os.MkdirAll(filepath.Dir(at), 0o755))
			if to == "" {
				err = errors.Join(err, os.MkdirAll(at, 0o750), os.Chmod(at, 0o750), os.WriteFile(filepath.Join(at, "image"), nil, 0o644))
			} else {
				err = errors.Join(err, os.Symlink(to, at))
			}
		}
		return err
	})}
	m := newContainerMachine(t, withVolumes(t), func(c *config) { c.Images = all })
	for i, c := range []struct {
		paths   []string // of volumes; the first has a file
		at, err string   // in the task; why it cannot be
	}{
		{[]string{"/lib/x"}, "/usr/lib/x", ""},
		{[]string{"/var/run/x/y"}, "/run/x/y", ""},
		{[]string{"/far/x"}, "/srv/data/x", ""},
		{[]string{"/twice"}, "/srv/data/deep", ""},
		{[]string{"/far"}, "/srv/data", ""},
		{[]string{"/up/up/up/new"}, "/new", ""},
		{[]string{"/machine/x"}, outside + "/x", ""},
		{[]string{"/lib/x", "/lib/y"}, "/usr/lib/x", ""},
		{[]string{"/up"}, "", "leads to /, where"},
		{[]string{"/a/x"}, "", "links lead to links"},
		{[]string{"/own/secrets"}, "", "leads to /muster/secrets, where"},
		{[]string{"/kernel"}, "", "leads to /sys/kernel, where"},
		{[]string{"/far/x", "/same"}, "", "at /srv/data, and something else at /srv/data/x"},
		{[]string{"/far", "/same/x"}, "", "at /srv/data/x, and something else at /srv/data"},
	} {
		a := root(i, "test/links", `cat "$AT/there" "$ASKED/there"`)
		a.Job.Task.Env = map[string]string{"AT": c.at, "ASKED": c.paths[0]}
		a.Job.Task.Volumes = map[string]schema.TaskVolume{}
		for n, path := range c.paths {
			a.Job.Task.Volumes[fmt.Sprint("v", n)] = schema.TaskVolume{Path: path, Shared: "writable"}
		}
		dir := place(t, m.dir, a, 1)
		p, err := m.Start(t.Context(), dir, a)
		switch {
		case c.err != "" && (err == nil || !errors.Is(err, nodeagent.ErrTask) || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%v: %v, want %q", c.paths, err, c.err)
		case c.err == "" && err != nil:
			t.Errorf("%v: %v", c.paths, err)
		case err == nil:
			wait(t, p)
			if out := said(t, dir); !strings.HasPrefix(out, "shared\nshared\n") {
				b, _ := os.ReadFile(filepath.Join(dir, "stderr"))
				t.Errorf("%v: says %q\n%s", c.paths, out, b)
			}
		}
	}
	if _, err := os.Lstat(outside); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("on the machine is %s: %v", outside, err)
	}
}

// TestVolumesOfTheMachine: a machine gives no task its agent's files, nor what is not there.
func TestVolumesOfTheMachine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for path, want := range map[string]string{
		dir: "must not see", filepath.Dir(dir): "must not see", "/proc/1": "must not see", filepath.Join(dir, "x"): "no such file", "/etc/passwd": "not a directory",
	} {
		h, r, err := openDir(dir, func(c *config) { c.Volumes = map[string]runtime.Volume{"v": {Path: path}} })
		if err == nil {
			_ = errors.Join(r.Close(), h.Close())
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
