package nodeagent_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// container is an assignment of a container.
func container(job string, generation uint64, image string) schema.Assignment {
	a := assignment(job, 0, generation, schema.Service)
	j := *a.Job
	j.Task.Process, j.Task.Container = schema.Process{}, &schema.Container{Image: image}
	a.Job = &j
	return a
}

// TestImageComesFirst: nothing is started whose image is not here, one image is brought
// once for all that need it, what failed is tried again after a while, and how that stands
// is reported.
func TestImageComesFirst(t *testing.T) {
	t.Parallel()
	d := newDriver(nodeagent.Found{})
	a, b := container("a", 1, "x"), container("b", 2, "x")
	d.assign(t, 1, a, b)
	d.want(t, "a view", "log confirmed", "write view", "write view")
	needs := func(bring ...string) {
		t.Helper()
		if diff := cmp.Diff(bring, d.turn.Bring); diff != "" || !slices.Equal(d.turn.Images, []string{"x"}) {
			t.Errorf("images %v are needed, to be brought (-want +got):\n%s", d.turn.Images, diff)
		}
	}
	note := func(want string) {
		t.Helper()
		for _, s := range d.turn.Report.Tasks {
			if s.State != schema.Starting || !strings.Contains(s.Note, want) {
				t.Errorf("reported %+v, want it starting, with %q", s, want)
			}
		}
	}
	needs("x")
	note("its image is being pulled: x")
	d.want(t, "it is on its way")
	needs()
	failed := errors.New("registry unavailable: connection refused")
	for i, delay := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		d.agent.Brought("x", failed, time.Time{}, d.now)
		d.want(t, "it has failed")
		needs()
		note("cannot be pulled, and is tried again: registry unavailable")
		if wake := d.agent.Wake(); !wake.Equal(d.now.Add(delay)) {
			t.Errorf("tried again %s after failure %d, want %s", wake.Sub(d.now), i+1, delay)
		}
		d.now = d.agent.Wake()
		d.want(t, "it is time")
		needs("x")
	}
	later := d.now.Add(time.Minute)
	d.agent.Brought("x", failed, later, d.now)
	d.want(t, "the registry says when")
	d.now = later.Add(-time.Nanosecond)
	d.want(t, "too early")
	needs()
	d.now = later
	d.want(t, "it is time")
	d.agent.Brought("x", nil, time.Time{}, d.now)
	d.want(t, "it is here", "start u/a/0", "start u/b/0")
	needs()
	d.want(t, "nothing new")
	d.assign(t, 2)
	d.decide()
	needs() // what runs keeps its image
	d.exit(a.Task, 0)
	d.agent.Exited(incarnationOf(b.Task, 2, 1), nodeagent.Process{Boot: "boot-1", PID: 7, Exit: &schema.Exit{At: d.now}}, d.now)
	d.decide()
	if len(d.turn.Images) > 0 {
		t.Errorf("images %v are needed by nothing", d.turn.Images)
	}
	d.assign(t, 3, container("c", 3, "x"))
	d.decide()
	needs("x") // it may be gone meanwhile
}

// TestImageOfTheNextVersion: it comes while the task runs, and the report says when it is
// there, or why it is not.
func TestImageOfTheNextVersion(t *testing.T) {
	t.Parallel()
	d := newDriver(nodeagent.Found{})
	a := container("a", 1, "x")
	d.assign(t, 1, a)
	d.decide()
	d.agent.Brought("x", nil, time.Time{}, d.now)
	d.want(t, "it is here", "start u/a/0")
	a.Bring = []string{"y"}
	d.assign(t, 2, a)
	d.decide()
	status := func() schema.TaskStatus { return d.turn.Report.Tasks[0] }
	if s := status(); !slices.Equal(d.turn.Bring, []string{"y"}) || !slices.Equal(d.turn.Images, []string{"x", "y"}) || s.State != schema.Running || len(s.Brought) > 0 || s.Note != "next version: its image is being pulled: y" {
		t.Errorf("bring %v of %v, reported %+v", d.turn.Bring, d.turn.Images, s)
	}
	d.agent.Brought("y", errors.New("no such host"), time.Time{}, d.now)
	d.decide()
	if s := status(); len(s.Brought) > 0 || !strings.HasSuffix(s.Note, "no such host") {
		t.Errorf("reported %+v, want why the image is not there", s)
	}
	d.agent.Brought("y", nil, time.Time{}, d.now)
	d.decide()
	if s := status(); !slices.Equal(s.Brought, a.Bring) || s.Note != "" || s.State != schema.Running {
		t.Errorf("reported %+v, want that the image is there", s)
	}
}

// TestPackagesComeFirst: a task waits for its image and for each of its packages, says what
// for, and what has failed first; its packages stay while it runs.
func TestPackagesComeFirst(t *testing.T) {
	t.Parallel()
	d := newDriver(nodeagent.Found{})
	a := container("a", 1, "x")
	a.Job.Task.Packages = []schema.TaskPackage{{Name: "p", From: "https://h/p", Digest: "d"}, {Name: "q", From: "oci://h/q", Digest: "e"}, {Name: "again", From: "https://h/p", Digest: "d"}}
	d.assign(t, 1, a)
	d.decide()
	names := []string{"https://h/p@d", "oci://h/q@e", "x"}
	if !slices.Equal(d.turn.Bring, names) || !slices.Equal(d.turn.Images, names) {
		t.Errorf("bring %v of %v, want %v", d.turn.Bring, d.turn.Images, names)
	}
	note := func(want string) {
		t.Helper()
		d.decide()
		if s := d.turn.Report.Tasks[0]; s.State != schema.Starting || s.Note != want {
			t.Errorf("reported %+v, want it starting, with %q", s, want)
		}
	}
	note("its image is being pulled: x")
	d.agent.Brought("x", nil, time.Time{}, d.now)
	note("its package is being fetched: https://h/p@d")
	d.agent.Brought("oci://h/q@e", errors.New("wrong digest"), time.Time{}, d.now)
	note("its package cannot be fetched, and is tried again: wrong digest")
	d.agent.Brought("https://h/p@d", nil, time.Time{}, d.now)
	note("its package cannot be fetched, and is tried again: wrong digest")
	d.now = d.agent.Wake()
	d.decide()
	d.agent.Brought("oci://h/q@e", nil, time.Time{}, d.now)
	d.want(t, "all is here", "start u/a/0")
	d.decide()
	if !slices.Equal(d.turn.Images, names) {
		t.Errorf("%v stay, want %v", d.turn.Images, names)
	}
	b := a
	b.Bring = []string{"https://h/new@f", "x"}
	d.assign(t, 2, b)
	d.decide()
	if s := d.turn.Report.Tasks[0]; len(s.Brought) > 0 || s.Note != "next version: its package is being fetched: https://h/new@f" {
		t.Errorf("reported %+v, want the next package to be awaited", s)
	}
	d.agent.Brought("https://h/new@f", nil, time.Time{}, d.now)
	d.decide()
	if s := d.turn.Report.Tasks[0]; !slices.Equal(s.Brought, b.Bring) || s.Note != "" {
		t.Errorf("reported %+v, want %v to be there", s, b.Bring)
	}
}
