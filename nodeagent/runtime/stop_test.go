package runtime_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/schema"
)

func TestStopSignal(t *testing.T) {
	t.Parallel()
	testStopSignal(t, newMachine(t))
}

func testStopSignal(t *testing.T, m *machine) {
	t.Helper()
	a := shell(0, `trap 'echo quit; exit 3' QUIT; trap 'echo term' TERM; echo up; while :; do sleep 0.01; done`)
	a.Job.Task.Stop = &schema.Stop{Signal: "SIGQUIT"}
	p, dir := m.start(a)
	says(t, dir, "up")
	if err := p.Signal(false); err != nil {
		t.Fatal(err)
	}
	want := &schema.Exit{Incarnation: 1, Code: 3, Message: "SIGQUIT was sent"}
	if d := cmp.Diff(want, wait(t, p), compareExit); d != "" {
		t.Errorf("exit (-want +got)\n%s", d)
	}
	if is := p.State(); !is.Terminated || is.EndedItself {
		t.Errorf("is %+v", is)
	}
	if out := said(t, dir); out != "up\nquit\n" {
		t.Errorf("output %q", out)
	}
}

// TestStopSignalOfImage: an image says how it is stopped, unless the job does.
func TestStopSignalOfImage(t *testing.T) {
	t.Parallel()
	for i, c := range []struct{ image, job, want string }{
		{"SIGINT", "", "INT"}, {"12", "", "USR2"}, {"rtmin+3", "", "RTMIN+3"}, {"SIGINT", "SIGUSR1", "USR1"}, {"", "", "TERM"},
	} {
		m := newContainerMachine(t, func(c2 *config) {
			image := c2.Images.(images)[busyboxImage]
			image.Settings.StopSignal = c.image
			c2.Images.(images)[busyboxImage] = image
		})
		a := contained(shell(i, `for s in INT USR1 USR2 TERM 37; do trap "echo got $s; exit" $s; done; echo up; while :; do sleep 0.01; done`))
		if c.job != "" {
			a.Job.Task.Stop = &schema.Stop{Signal: c.job}
		}
		p, dir := m.start(a)
		says(t, dir, "up")
		if err := p.Signal(false); err != nil {
			t.Fatal(err)
		}
		wait(t, p)
		if out := strings.ReplaceAll(said(t, dir), "37", "RTMIN+3"); out != "up\ngot "+c.want+"\n" {
			t.Errorf("image %q, job %q: %q, want %s", c.image, c.job, out, c.want)
		}
	}
	m := newContainerMachine(t, func(c *config) {
		image := c.Images.(images)[busyboxImage]
		image.Settings.StopSignal = "SIGNONE"
		c.Images.(images)[busyboxImage] = image
	})
	a := contained(shell(9, "exit"))
	if _, err := m.Start(t.Context(), place(t, m.dir, a, 1), a); err == nil || !strings.Contains(err.Error(), "task.stop.signal") {
		t.Errorf("a signal that is none: %v", err)
	}
}

func TestSignalNamed(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{
		"SIGTERM": 15, "term": 15, "9": 9, "SIGRTMIN+3": 37, "RTMIN": 34, "SIGRTMAX-1": 63, "RTMAX": 64, "": 0, "0": 0, "65": 0, "SIGX": 0, "SIG": 0,
	} {
		if got := keeper.SignalNamed(name); got != want {
			t.Errorf("%q is %d, want %d", name, got, want)
		}
	}
	for _, name := range append(schema.StopSignals(), schema.ChangeSignals()...) {
		if keeper.SignalNamed(name) == 0 {
			t.Errorf("%s is none", name)
		}
	}
}

func TestKillFrozen(t *testing.T) {
	t.Parallel()
	testKillFrozen(t, newMachine(t))
}

// testKillFrozen: what somebody has stopped by its cgroup ends all the same.
func testKillFrozen(t *testing.T, m *machine) {
	t.Helper()
	needRoot(t)
	p, dir := m.start(shell(0, "echo up; while :; do sleep 0.01; done"))
	says(t, dir, "up")
	text, err := os.ReadFile(filepath.Join(dir, keeper.SpecFile))
	var spec keeper.Spec
	if err == nil {
		err = json.Unmarshal(text, &spec)
	}
	if err != nil {
		t.Fatal(err)
	}
	frozen := false
	for _, group := range spec.Cgroups {
		for name, text := range map[string]string{"freezer.state": "FROZEN", "cgroup.freeze": "1"} {
			if f, err := os.OpenFile(filepath.Join(group, name), os.O_WRONLY, 0); err == nil {
				_, err = f.WriteString(text)
				frozen = frozen || err == nil
				_ = f.Close()
			}
		}
	}
	if !frozen {
		t.Skip("NOT TESTED: needs cgroups that can be frozen")
	}
	if exit := end(t, p); exit.Signal != "SIGKILL" {
		t.Errorf("exit %+v", exit)
	}
}
