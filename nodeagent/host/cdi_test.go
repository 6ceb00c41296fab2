package host

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/musterhq/muster/schema"
)

// TestCDIOnce: what CDI files say is read with the devices, all at once: a file that is replaced in the
// middle of a start gives a task no half of each.
func TestCDIOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "vendor.json")
	const says = `{"cdiVersion": "0.6.0", "kind": "vendor.example/gpu", "devices": [
		{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/zero"}, {"path": "/dev/full"}], "env": ["WHICH=0"]}}]}`
	if err := os.WriteFile(file, []byte(says), 0o600); err != nil {
		t.Fatal(err)
	}
	h := &Host{cfg: Config{CDIDirs: []string{dir}, Devices: map[string]DeviceFiles{"gpu": {Each: [][]string{{"/dev/zero"}}}}}}
	g := h.Devices([]schema.DeviceUse{{Kind: "gpu"}})
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, f := range g.Files {
		paths = append(paths, f.Path)
	}
	if diff := cmp.Diff([]string{"/dev/zero", "/dev/full"}, paths); diff != "" || g.Note != "" {
		t.Errorf("files: %s, note %q", diff, g.Note)
	}
	edits, err := g.Edits()
	if diff := cmp.Diff([]string{"WHICH=0"}, edits.Env); diff != "" || err != nil {
		t.Errorf("environment: %s, %v", diff, err)
	}
}
