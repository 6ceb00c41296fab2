package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/cmd/internal/binaries"
	"github.com/musterhq/muster/nodeagent/image/imagetest"
	"github.com/musterhq/muster/schema"
)

// checking is a config repository whose images are looked at.
type checking struct {
	t   *testing.T
	dir string
}

// with writes a job for each image.
func (c checking) with(images ...string) {
	c.t.Helper()
	text := "package example\n\nimport \"example.com/config/muster\"\n"
	for i, name := range images {
		text += fmt.Sprintf("job: web%d: muster.#Job & {user: \"example\", cell: \"local\", task: container: image: %q}\n", i, name)
	}
	if err := os.WriteFile(filepath.Join(c.dir, "teams", "example", "hello.cue"), []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
}

// muster runs a command in the repository, and returns its exit code and all that it prints.
func (c checking) muster(args ...string) (code int, out string) {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), filepath.Join(binaries.Dir(c.t), "muster"), args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(), "DOCKER_CONFIG="+c.dir+"/.nobody")
	b, err := cmd.CombinedOutput()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		c.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(b)
}

// says runs a command that must find errors, and wants these texts in its output.
func (c checking) says(args []string, want ...string) (out string) {
	c.t.Helper()
	code, out := c.muster(args...)
	for _, w := range want {
		if code != exitInvalid || !strings.Contains(out, w) {
			c.t.Errorf("muster %s exits %d and does not say %q:\n%s", strings.Join(args, " "), code, w, out)
		}
	}
	return out
}

// TestTagRefused: a tag without a digest is refused with the reference to write, in each format;
// where that is not known, with the reason. A verdict that was remembered asks again.
func TestTagRefused(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("docker-registry"); err != nil {
		t.Skipf("NOT TESTED: needs docker-registry: %v", err)
	}
	c := checking{t, initialized(t)}
	registry := imagetest.DockerRegistry(t)
	i := imagetest.Of(t, imagetest.Random(t, 1, 100), imagetest.Settings{})
	imagetest.Push(t, registry, "team/web", i)
	exact := imagetest.Tag(t, registry, "team/web", "1.27", i)
	tagged := registry + "/team/web:1.27"
	c.with(tagged)

	refused := fmt.Sprintf("image %q has a tag", tagged)
	c.says([]string{"validate"}, "hello.cue:4:", refused, "\n  want: "+exact+"\n", "hint: write that, or run muster image pin")
	c.says([]string{"diff"}, refused, "\n  want: "+exact+"\n")
	c.says([]string{"validate", "-o", "sarif"}, "want: "+exact+`\nhint:`)
	c.says([]string{"validate", "-o", "github"}, "want: "+exact+"%0Ahint:")
	var v verdict
	if err := json.Unmarshal([]byte(c.says([]string{"validate", "-o", "json"})), &v); err != nil || v.Valid || len(v.Diagnostics) != 1 {
		t.Fatalf("%v, %+v", err, v)
	}
	if d := v.Diagnostics[0]; d.Image != tagged || d.Expected != exact || d.Rule != schema.RuleInvalidValue {
		t.Errorf("%+v", d)
	}
	for _, command := range []string{"validate", "diff"} {
		out := c.says([]string{command, "--offline"}, refused, "run muster image pin", "; no registry was asked: --offline")
		if strings.Contains(out, string(i.Digest)) {
			t.Errorf("%s --offline says the digest:\n%s", command, out)
		}
	}

	// What is remembered of a package is not what a tag stood for.
	moved := imagetest.Of(t, imagetest.Random(t, 2, 100), imagetest.Settings{})
	imagetest.Push(t, registry, "team/web", moved)
	c.says([]string{"validate"}, imagetest.Tag(t, registry, "team/web", "1.27", moved))

	c.with(exact)
	if code, out := c.muster("validate"); code != exitOK {
		t.Errorf("what was to be written: exit %d, %s", code, out)
	}
	c.with(registry+"/team/web:2", "127.0.0.1:1/team/web:1", registry+"/team/web", tagged)
	c.says([]string{"validate"}, "no such image: "+registry+"/team/web, manifests/2: not in the registry",
		"run muster image pin, which adds the digest that the tag stands for; the registry did not say it: 127.0.0.1:1/team/web", "connection refused",
		"has no digest\n", "want: "+registry+"/team/web:1.27@")
}

// TestTagHints: each tag is asked for once, a registry that does not answer is not waited for, and
// there is an end to how many are asked for.
func TestTagHints(t *testing.T) {
	var asked atomic.Int64
	held := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if strings.Contains(r.URL.Path, "/slow/") {
			select {
			case <-r.Context().Done():
			case <-held:
			}
			return
		}
		w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
		w.Header().Set("Docker-Content-Digest", newDigest)
	}))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(held) })
	host := strings.TrimPrefix(s.URL, "http://")
	t.Setenv("DOCKER_CONFIG", t.TempDir())

	of := func(images ...string) (out []schema.Diagnostic) {
		for _, name := range images {
			out = append(out, schema.Diagnostic{Severity: schema.Error, Image: name, Message: "m", Hint: "h"})
		}
		return append(out, schema.Diagnostic{Severity: schema.Error, Message: "another mistake", Hint: "h", Expected: "e"})
	}
	ds := of(host+"/a:1", host+"/a:1", host+"/a:2")
	tagHints{patience: time.Minute}.fill(t.Context(), ds)
	if n := asked.Swap(0); n != 2 || ds[1].Expected != host+"/a:1@"+newDigest || ds[2].Expected != host+"/a:2@"+newDigest {
		t.Errorf("%d requests, %+v", n, ds)
	}
	if d := ds[3]; d.Hint != "h" || d.Expected != "e" {
		t.Errorf("of another mistake: %+v", d)
	}

	ds = of(host+"/a:1", host+"/slow/b:1")
	tagHints{patience: 2 * time.Second}.fill(t.Context(), ds)
	if d := ds[1]; d.Hint != "h; "+host+" did not say it within 2s" || d.Expected != "" {
		t.Errorf("of a registry that does not answer: %+v", d)
	}
	if ds[0].Expected == "" {
		t.Errorf("beside one that does not answer: %+v", ds[0])
	}

	asked.Store(0)
	var many []string
	for i := range mostTags + 3 {
		many = append(many, fmt.Sprintf("%s/a:%d", host, i))
	}
	ds = of(many...)
	tagHints{patience: time.Minute}.fill(t.Context(), ds)
	if n := asked.Load(); n != mostTags || ds[mostTags-1].Expected == "" || ds[mostTags].Hint != "h; no more than 32 tags are asked for" {
		t.Errorf("%d requests, %+v", n, ds[mostTags])
	}

	if err := os.WriteFile(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	ds = of(host + "/a:1")
	tagHints{patience: time.Minute}.fill(t.Context(), ds)
	if !strings.HasPrefix(ds[0].Hint, "h; no registry was asked: ") || !strings.Contains(ds[0].Hint, "config.json") {
		t.Errorf("with a damaged file of logins: %+v", ds[0])
	}
}
