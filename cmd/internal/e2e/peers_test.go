package e2e_test

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// packaged is a task on each machine that has a package, of which %s is the digest.
const packaged = `package crew

import "` + module + `/muster"

job: has: muster.#Job & {
	user: "crew", cell: "` + cellName + `", kind: "system"
	task: {
		process: command: ["/bin/sh", "-c", "cat /opt/app/data > data && exec sleep 1000"]
		packages: [{name: "app", path: "/opt/app", digest: "sha256:%s", from: "http://10.99.0.1:8000/app.tar"}]
		resources: {cpuMilli: 10, ramBytes: 16Mi, diskBytes: 64Mi}
		graceSeconds: 1
	}
}
`

// TestPeersElsewhere has machines get a package at once, two of them from its server and the others
// from each other, and one more when the server is gone.
func TestPeersElsewhere(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skipf("NOT TESTED: needs python3: %v", err)
	}
	s := newSpread(t, certificateLife)
	digest := s.archive(4 << 20)
	line := s.net.on(0, python, "-u", "-m", "http.server", "8000", "--directory", s.path("files"))
	files, err := launch(s.path("files.log"), line[0], line[1:]...)
	s.must(err)
	s.must(within(bound, func() error {
		line := s.net.on(0, python, "-c", "import socket; socket.create_connection(('10.99.0.1', 8000))")
		out, err := exec.CommandContext(t.Context(), line[0], line[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}))
	join := func(name string) {
		s.agent(s.net.attach(), name, "--token-file", s.token(name), "--peer-listen", ":7423", "--insecure-registry", "10.99.0.1:8000")
	}
	for _, name := range []string{"m1", "m2", "m3", "m4", "m5"} {
		join(name)
	}
	s.must(within(bound, func() error {
		if n := len(s.status().Machines); n != 5 {
			return fmt.Errorf("%d machines have joined", n)
		}
		return nil
	}))
	s.commit("a package", map[string][]byte{teamFile: fmt.Appendf(nil, packaged, digest)})
	s.up(5)
	if n := strings.Count(s.log("files"), "GET /app.tar"); n == 0 || n > 2 {
		t.Errorf("the server was asked %d times: want 1 or 2\n%s", n, s.log("files"))
	}
	s.must(files.end(syscall.SIGINT, bound))
	join("late")
	s.up(6)
}

// archive writes an archive with so many bytes that the server has, and returns its digest.
func (s *spread) archive(size int) string {
	s.t.Helper()
	content := make([]byte, size)
	_, _ = rand.Read(content) // never errs
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	s.must(w.WriteHeader(&tar.Header{Name: "data", Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(size)}))
	_, err := w.Write(content)
	s.must(err)
	s.must(w.Close())
	s.must(os.Mkdir(s.path("files"), 0o755))
	s.must(os.WriteFile(filepath.Join(s.path("files"), "app.tar"), out.Bytes(), 0o644))
	return fmt.Sprintf("%x", sha256.Sum256(out.Bytes()))
}
