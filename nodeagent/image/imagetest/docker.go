package imagetest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/opencontainers/image-spec/specs-go/v1"
)

// DockerRegistry starts docker-registry on loopback, and returns its address.
func DockerRegistry(t testing.TB) string {
	t.Helper()
	base := t.TempDir()
	config := fmt.Sprintf("version: 0.1\nlog: {level: info}\nstorage: {filesystem: {rootdirectory: %s}}\nhttp: {addr: \"127.0.0.1:0\"}\n", filepath.Join(base, "data"))
	file := filepath.Join(base, "config.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "docker-registry", "serve", file) // until the end, also of what t cleans up before
	cmd.Env = append(os.Environ(), "OTEL_TRACES_EXPORTER=none")
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	listening := regexp.MustCompile(`listening on (127\.0\.0\.1:[0-9]+)`)
	for lines.Scan() {
		if m := listening.FindStringSubmatch(lines.Text()); m != nil {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return m[1]
		}
	}
	t.Fatalf("docker-registry does not listen: %v", lines.Err())
	return ""
}

// Push puts an image into a repository of a registry, by its address.
func Push(t testing.TB, registry, repository string, i Image) {
	t.Helper()
	at := "http://" + registry + "/v2/" + repository
	for sum, b := range i.Blobs {
		to := at + "/blobs/uploads/"
		location := send(t, http.MethodPost, to, "", nil)
		u, err := url.Parse(location)
		if err != nil || u.Host == "" {
			t.Fatalf("%s: location %q, %v", to, location, err)
		}
		q := u.Query()
		q.Set("digest", sum.String())
		u.RawQuery = q.Encode()
		send(t, http.MethodPut, u.String(), "application/octet-stream", b)
	}
	send(t, http.MethodPut, at+"/manifests/"+i.Digest.String(), v1.MediaTypeImageManifest, i.Manifest)
}

// send sends one request, which must succeed, and returns the Location of the answer.
func send(t testing.TB, method, to, kind string, body []byte) (location string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, to, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", kind)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }() // it was read from only
	if said, err := io.ReadAll(res.Body); res.StatusCode >= http.StatusBadRequest || err != nil {
		t.Fatalf("%s %s: %s, %v\n%s", method, to, res.Status, err, said)
	}
	return res.Header.Get("Location")
}

// Tag gives an image that was pushed a tag, and returns the reference with both.
func Tag(t testing.TB, registry, repository, tag string, i Image) string {
	t.Helper()
	send(t, http.MethodPut, "http://"+registry+"/v2/"+repository+"/manifests/"+tag, v1.MediaTypeImageManifest, i.Manifest)
	return registry + "/" + repository + ":" + tag + "@" + i.Digest.String()
}
