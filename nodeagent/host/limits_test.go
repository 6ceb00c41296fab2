package host

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

func TestParseCores(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]int{"0": {0}, "0-2,5": {0, 1, 2, 5}, "3,1-2,2": {1, 2, 3}} {
		if got, err := ParseCores(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "a", "1-", "-1", "2-1", "0-99999999", "1,,2"} {
		if got, err := ParseCores(text); err == nil {
			t.Errorf("%q: %v, want an error", text, got)
		}
	}
}

// TestDiskShares: what is written to cgroups v2, also where there is no disk.
func TestDiskShares(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		l      nodeagent.TaskLimits
		disk   string
		weight string
		bound  string
	}{
		{nodeagent.TaskLimits{Class: schema.ClassBatch, IOBytes: 1 << 20}, "8:0", "10", "8:0 rbps=1048576 wbps=1048576 riops=32 wiops=32"},
		{nodeagent.TaskLimits{IOBytes: 100}, "8:0", "100", "8:0 rbps=100 wbps=100 riops=1 wiops=1"},
		{nodeagent.TaskLimits{}, "8:0", "100", "8:0 rbps=max wbps=max riops=max wiops=max"},
		{nodeagent.TaskLimits{IOBytes: 100}, "", "100", ""},
	} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "task"), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"io.weight", "io.max"} { // and no io.bfq.weight
			if err := os.WriteFile(filepath.Join(dir, "task", name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := (&unified{mount: dir, has: map[string]bool{ioController: true}}).share("task", c.disk, c.l); err != nil {
			t.Error(err)
		}
		for name, want := range map[string]string{"io.weight": c.weight, "io.max": c.bound} {
			if b, err := os.ReadFile(filepath.Join(dir, "task", name)); err != nil || string(b) != want {
				t.Errorf("%+v on %q: %s %q, %v, want %q", c.l, c.disk, name, b, err, want)
			}
		}
	}
}
