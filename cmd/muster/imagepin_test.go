package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	oldDigest = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	newDigest = "sha256:fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"
)

// newTags serves the tag 1 of each repository to a user, as new.
func newTags(t *testing.T) (host string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		switch {
		case user != "me" || password != "secret:":
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method == http.MethodHead && strings.HasSuffix(r.URL.Path, "/manifests/1"):
			w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
			w.Header().Set("Docker-Content-Digest", newDigest)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// pin runs muster image pin and returns its exit code and what it prints, with the
// registry as HOST.
func pin(t *testing.T, host string, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = run(t.Context(), append([]string{"image", "pin", "--insecure", host}, args...), stdio{in: strings.NewReader(""), out: &stdout, err: &stderr})
	return code, strings.ReplaceAll(stdout.String(), host, "HOST"), strings.ReplaceAll(stderr.String(), host, "HOST")
}

func TestImagePin(t *testing.T) {
	host := newTags(t)
	logins := t.TempDir()
	t.Setenv("DOCKER_CONFIG", logins)
	if err := os.WriteFile(filepath.Join(logins, "config.json"), []byte(`{"auths": {"`+host+`": {"auth": "bWU6c2VjcmV0Og=="}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Chdir(dir)
	put := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(strings.ReplaceAll(text, "HOST", host)), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	is := func(name, want string) {
		t.Helper()
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, strings.ReplaceAll(string(b), host, "HOST")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	prints := func(want string, code int, args ...string) {
		t.Helper()
		got, out, errs := pin(t, host, args...)
		if diff := cmp.Diff(want, out+errs); diff != "" || got != code {
			t.Errorf("pin %q exits %d, want %d (-want +got):\n%s", args, got, code, diff)
		}
	}
	const web = `package a

job: new: task: container:   {image: "HOST/a/web:1"} // as it was
job: old: task: container: image:    "HOST/web:1@OLD"
job: same: task: container: image: "HOST/web:1@NEW"
job: plain: task: container: image: "HOST/web@OLD"
`
	digests := strings.NewReplacer("OLD", oldDigest, "NEW", newDigest)
	const far = "package b\n\njob: far: task: container: image: \"HOST/b:\\(_tag)\"\n"
	put("a/web.cue", digests.Replace(web))
	put("b/far.cue", far)
	put(".hidden/a.cue", "no CUE")
	put("a/.editor.cue", "no CUE")
	put("a/notes.txt", "no CUE")

	differs := digests.Replace(`a/web.cue:3:38: HOST/a/web:1 is NEW
a/web.cue:4:38: HOST/web:1@OLD is now NEW
b/far.cue:3:35: is computed, and left alone
2 images to pin, 2 as they should be
`)
	prints(differs, exitDiffers, "--check")
	is("a/web.cue", digests.Replace(web))
	prints("a/web.cue:3:38: HOST/a/web:1 is "+newDigest+"\n1 image to pin, 3 as they should be\n", exitDiffers, "--check", "--missing", "a", "a/web.cue")
	prints(strings.Replace(differs, "to pin", "pinned", 1), exitOK)
	pinnedWeb := strings.Replace(web, "a/web:1\"", "a/web:1@NEW\"", 1)
	is("a/web.cue", digests.Replace(strings.Replace(pinnedWeb, "1@OLD", "1@NEW", 1)))
	is("b/far.cue", far)
	if info, err := os.Stat("a/web.cue"); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	prints("0 images to pin, 4 as they should be\n", exitOK, "--check", "a/web.cue")
}

func TestImagePinMistakes(t *testing.T) {
	host := newTags(t)
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	t.Chdir(t.TempDir())
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("a.cue", `container: image: "`+host+`/a:1"`)
	code, out, _ := pin(t, host, "-o", "json", "a.cue")
	var got struct {
		Images []struct {
			Path         string
			Line, Column int
			Image, State string
			Want, Error  string
		}
		Written []string
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Images) != 1 || got.Written == nil || code != exitCouldNot {
		t.Fatalf("exit %d: %s", code, out)
	}
	if img := got.Images[0]; img.State != "unknown" || img.Path != "a.cue" || img.Column != 19 || img.Want != "" || !strings.Contains(img.Error, "wants credentials") {
		t.Errorf("%+v", img)
	}
	for _, tt := range []struct{ name, text, says, hint string }{
		{"short.cue", `container: image: "nginx:1"`, "short.cue:1:19: error: image \"nginx:1\" names no registry", "docker.io/library/nginx:1"},
		{"bare.cue", `container: image: "quay.io/a"`, "no digest", "name a version"},
		{"broken.cue", "a: {", "broken.cue:1:5: ", "muster validate"},
		{"notes.txt", "", "notes.txt is not a CUE file", ".cue"},
		{"nowhere.cue", "", "no such file", "config repository"},
	} {
		if tt.name != "nowhere.cue" {
			put(tt.name, tt.text)
		}
		if code, out, errs := pin(t, host, tt.name); code != exitInvalid || !strings.Contains(out+errs, tt.says) || !strings.Contains(out+errs, tt.hint) {
			t.Errorf("%s: exit %d: %s%s", tt.name, code, out, errs)
		}
	}
	put(filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), "{")
	if code, _, errs := pin(t, host, "a.cue"); code != exitInvalid || !strings.Contains(errs, "config.json") || !strings.Contains(errs, "DOCKER_CONFIG") {
		t.Errorf("exit %d: %s", code, errs)
	}
}
