package readme

import (
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/cmd/internal/binaries"
	"github.com/musterhq/muster/cmd/internal/repofiles"
	"github.com/musterhq/muster/schema/scaffold"
)

//go:generate go test -count=1 -run ^TestExampleDefinitions$ . -update

var update = flag.Bool("update", false, "write the definitions of the examples")

// examplesDir has the examples, from the module's root.
const examplesDir = "examples"

// What the page of an example may name: the port of a cell, where that has to be found
// from the repository, the registry of its images, and the port of a server of its files.
// A test takes others.
const (
	fixedPort     = "7420"
	fixedRegistry = "127.0.0.1:5000"
	fixedFiles    = "8437"
)

// containerPrograms are those that the page of an example with a registry needs.
var containerPrograms = []string{"crun", "runsc", "busybox", "umoci", "skopeo", "docker-registry"}

// frontDoor is the example that needs HAProxy and nginx.
const frontDoor = "front-door"

// ownNetwork is the example that makes links of its machine, so that it has a machine's network for itself.
const ownNetwork = "network"

// rights is the example whose tasks get a capability, which others than root cannot give.
const rights = "rights"

// examples returns the names of the examples.
func examples(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, examplesDir))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	if len(names) < 6 {
		t.Fatalf("%s has %d examples, want 6 or more", examplesDir, len(names))
	}
	return names
}

// TestExamples types what the pages of the examples say: each runs its cell,
// changes it by commits, and shows what it says that it shows.
func TestExamples(t *testing.T) {
	t.Parallel()
	bin := binaries.Dir(t)
	for _, name := range examples(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testExample(t, bin, name)
		})
	}
}

func testExample(t *testing.T, bin, name string) {
	page, err := os.ReadFile(filepath.Join(root, examplesDir, name, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := parse(string(page))
	if err != nil {
		t.Fatalf("README.md: %v", err)
	}
	dir := shortDir(t)
	home := filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, examplesDir, name)
	if err := os.CopyFS(copied, os.DirFS(filepath.Join(root, examplesDir, name))); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(page), fixedRegistry) {
		needContainers(t)
	}
	if name == frontDoor {
		need(t, "haproxy")
		need(t, "nginx")
	}
	if name == rights && os.Geteuid() != 0 {
		t.Skip("NOT TESTED: needs root")
	}
	other := strings.NewReplacer(fixedPort, freePort(t), fixedRegistry, "127.0.0.1:"+freePort(t), fixedFiles, freePort(t))
	replacePorts(t, copied, other)
	commits := 0
	for i, b := range blocks {
		if b.tour != name {
			t.Errorf("README.md:%d: the block belongs to tour %q, want %q", b.line, b.tour, name)
		}
		blocks[i].text = other.Replace(b.text)
		for j, line := range b.shows {
			blocks[i].shows[j] = other.Replace(line)
		}
		commits += strings.Count(b.text, "git commit")
	}
	if commits < 2 {
		t.Error("README.md: the example is not changed by a commit")
	}
	tour := &tour{dir: dir, home: home, bin: bin + ":" + standIns(t)}
	if name == ownNetwork {
		tour.network = newNetwork(t)
	}
	if err := tour.run(t.Context(), blocks); err != nil {
		t.Errorf("%s/%s/README.md: %v", examplesDir, name, err)
	}
}

// freePort returns a port of loopback on which nobody listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// replacePorts puts other ports in the place of the fixed ones in the files below dir.
func replacePorts(t *testing.T, dir string, other *strings.Replacer) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if ext := filepath.Ext(name); err != nil || d.IsDir() || ext != ".cue" && ext != ".yml" {
			return err
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if text := other.Replace(string(b)); text != string(b) {
			return os.WriteFile(name, []byte(text), 0o644)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// need skips a test where the machine has no such program, in the directories that tasks look in.
func need(t *testing.T, program string) {
	t.Helper()
	for _, dir := range []string{"/usr/local/sbin", "/usr/sbin", "/usr/local/bin", "/usr/bin"} {
		if _, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return
		}
	}
	t.Skip("NOT TESTED: needs " + program)
}

// needContainers skips a test where no containers can be run and no images made.
func needContainers(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: needs root")
	}
	for _, name := range containerPrograms {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("NOT TESTED: needs %s: %v", name, err)
		}
	}
}

// newNetwork makes a network namespace for a cell whose tasks have networks of their own, made by plugins, too.
func newNetwork(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: needs root")
	}
	need(t, "busybox")
	need(t, "nsenter")
	if _, err := os.Stat("/usr/lib/cni/bridge"); err != nil {
		t.Skipf("NOT TESTED: needs containernetworking-plugins: %v", err)
	}
	name := fmt.Sprint("muster-readme-", os.Getpid())
	for _, args := range [][]string{{"netns", "add", name}, {"-n", name, "link", "set", "lo", "up"}} {
		if out, err := exec.CommandContext(t.Context(), "ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v\n%s", args, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("ip", "netns", "delete", name).CombinedOutput(); err != nil {
			t.Errorf("ip netns delete %s: %v\n%s", name, err, out)
		}
	})
	return filepath.Join("/run/netns", name)
}

// standIns returns a directory of programs for the PATH of a tour that stand in
// for what need not be installed on the machine of a test. It is readable for
// tasks of any user.
func standIns(t *testing.T) string {
	t.Helper()
	dir := shortDir(t)
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "bin"))); err != nil {
		t.Fatal(err)
	}
	programs, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		if err := os.Chmod(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestExampleDefinitions holds the definitions in the examples to those of this
// binary: an example is copied, and must not begin out of date.
func TestExampleDefinitions(t *testing.T) {
	t.Parallel()
	for _, name := range examples(t) {
		dir := filepath.Join(root, examplesDir, name)
		present := map[string][]byte{}
		paths, err := filepath.Glob(filepath.Join(dir, scaffold.Dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			b, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			present[scaffold.Dir+"/"+filepath.Base(p)] = b
		}
		changes := scaffold.Compare(present)
		if *update {
			if err := repofiles.Replace(dir, scaffold.Apply(changes), nil); err != nil {
				t.Fatal(err)
			}
			continue
		}
		for _, c := range changes {
			if c.State != scaffold.Current {
				t.Errorf("%s/%s/%s is %s: run make generate", examplesDir, name, c.Path, c.State)
			}
		}
	}
}

// TestExamplesCue runs the real cue command, as users and their editors do.
func TestExamplesCue(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cue := filepath.Join(dir, "cue")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", cue, "cuelang.org/go/cmd/cue").CombinedOutput(); err != nil {
		t.Fatalf("build cue: %v\n%s", err, out)
	}
	for _, name := range examples(t) {
		for _, args := range [][]string{{"vet", "-c", "./..."}, {"fmt", "--check", "--files", "."}} {
			c := exec.CommandContext(t.Context(), cue, args...)
			c.Dir = filepath.Join(root, examplesDir, name)
			c.Env = append(os.Environ(), "CUE_REGISTRY=none", "CUE_CACHE_DIR="+filepath.Join(dir, "cache"))
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%s: cue %s: %v\n%s", name, strings.Join(args, " "), err, out)
			}
		}
	}
}
