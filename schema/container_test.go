package schema_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema"
)

// TestDigestsOfOldData holds that data without a container has the digests it had
// before there were any: what is stored is found by them, and tasks go on.
func TestDigestsOfOldData(t *testing.T) {
	t.Parallel()
	job := &schema.Job{Name: "web", User: "a", Cell: "c", Kind: schema.Service, Tasks: 1}
	job.Task.Process = schema.Process{Command: []string{"/bin/sleep", "<1000>"}}
	job.Task.Env = map[string]string{"A": "b"}
	set := (&schema.AllocSet{Name: "pair", User: "a", Cell: "c", Allocs: 2}).Job()
	for _, tt := range []struct {
		job       *schema.Job
		data, run schema.Digest
	}{
		{job, "sha256:066d17a7f9d0f3527ce04dd40663c428450cda78f035aa2f9092e8985982dfc2", "sha256:3d584663ad4f72c7dc6218ec66ea0dc524a92fe7746854065d5b10ec238cab5e"},
		{set, "sha256:472a7822febc2f35e6ab0e470981423d272467154eaae6bb5434036472267847", "sha256:e1e9cb56420f77b4a6ac95e0d47425cb4659cddff0cee11bc53e60aff3644e41"},
	} {
		if got := schema.DigestOf(tt.job); got != tt.data {
			t.Errorf("%s has digest %s, had %s: %s", tt.job.Name, got, tt.data, schema.Canonical(tt.job))
		}
		if got := tt.job.Task.RunDigest(); got != tt.run {
			t.Errorf("%s has run digest %s, had %s", tt.job.Name, got, tt.run)
		}
	}
}

// contained returns a job that runs an image.
func contained() *schema.Job {
	j := &schema.Job{Name: "web", User: "a", Cell: "c", Kind: schema.Service, Tasks: 1}
	j.Task.Container = &schema.Container{Image: "docker.io/library/nginx@" + digestOfImage, Command: []string{"<$(A)>"}, Args: []string{"$(MUSTER_JOB)", "$(PATH)"}}
	j.Task.Env = map[string]string{"A": "b"}
	return j
}

func TestContainerAsData(t *testing.T) {
	t.Parallel()
	j := contained()
	doc := schema.Canonical(j)
	if strings.Contains(string(doc), "process") || !strings.Contains(string(doc), `"<$(A)>"`) {
		t.Errorf("is written as %s", doc)
	}
	again := new(schema.Job)
	if err := json.Unmarshal(doc, again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(j, again); diff != "" {
		t.Errorf("is read as (-written +read):\n%s", diff)
	}
	if !j.Runnable() {
		t.Error("is not runnable")
	}
	for name, change := range map[string]func(c *schema.Container){
		"image": func(c *schema.Container) { c.Image = "x" }, "command": func(c *schema.Container) { c.Command = nil },
		"args": func(c *schema.Container) { c.Args = nil }, "workdir": func(c *schema.Container) { c.Workdir = "/x" },
		"user": func(c *schema.Container) { c.User = "x" }, "readOnly": func(c *schema.Container) { c.ReadOnly = true },
		"runtime": func(c *schema.Container) { c.Runtime = schema.Runsc },
	} {
		next := contained()
		change(next.Task.Container)
		if next.Task.RunDigest() == j.Task.RunDigest() {
			t.Errorf("another %s has the same run digest", name)
		}
	}
}

func TestContainerCommand(t *testing.T) {
	t.Parallel()
	j := contained()
	a := &schema.Assignment{Task: j.ID().Task(0), Job: j}
	if got := a.Command(); !slices.Equal(got, []string{"<b>"}) {
		t.Errorf("command %q", got)
	}
	if got := a.Args(); !slices.Equal(got, []string{"web", "$(PATH)"}) {
		t.Errorf("args %q", got)
	}
	if path, ok := a.Environment()["PATH"]; ok {
		t.Errorf("PATH is %q: want that of the image", path)
	}
	j.Task.Container.Command, j.Task.Container.Args = nil, nil
	if a.Command() != nil || a.Args() != nil {
		t.Errorf("command %q, args %q: want those of the image", a.Command(), a.Args())
	}
}

func TestIsolationOfContainer(t *testing.T) {
	t.Parallel()
	task := &contained().Task
	is := func(want ...string) {
		t.Helper()
		if got := schema.IsolationOf(task); !slices.Equal(got, want) {
			t.Errorf("needs %q, want %q", got, want)
		}
	}
	is("container")
	task.Container.Runtime = schema.Runsc
	is("container.runsc")
	task.Isolation = &schema.Isolation{User: true, Network: schema.HostNetwork}
	is("container.runsc")
	task.Isolation.Network = schema.NoNetwork
	is("container.runsc", "isolation.network")
	task.Isolation.Require = true
	if got := schema.IsolationOf(task); !slices.Contains(got, "isolation.users") || got[0] != "container.runsc" {
		t.Errorf("needs %q", got)
	}
}
