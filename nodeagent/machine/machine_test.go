package machine_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/musterhq/muster/nodeagent/machine"
	"github.com/musterhq/muster/schema"
)

// Each archive in testdata is the files of a machine as its kernel has them, and
// what is found in them.
func TestFind(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			root, want := t.TempDir(), ""
			for _, f := range archive.Files {
				if f.Name == "want" {
					want = string(f.Data)
					continue
				}
				path := filepath.Join(root, f.Name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, f.Data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(want, printed(machine.Find(root, root))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// printed is what was found, without what is of this host.
func printed(f machine.Facts) string {
	var b strings.Builder
	for _, k := range []string{
		"cpu.model", "cpu.cores", "cpu.threads", "memory.bytes", "disk.sda", "disk.nvme0n1", "disk.loop0", "disk.dm-0", "disk.sr0", "gpu.count", "gpu.model",
	} {
		if v, ok := f.Attributes[k]; ok {
			fmt.Fprintf(&b, "%s: %s\n", k, v)
		}
	}
	for _, g := range f.Devices {
		fmt.Fprintf(&b, "device %s %q × %d", g.Kind, g.Model, g.Count)
		for _, k := range slices.Sorted(maps.Keys(g.Attributes)) {
			fmt.Fprintf(&b, ", %s %s", k, g.Attributes[k])
		}
		fmt.Fprintln(&b)
	}
	for i, files := range f.Files {
		fmt.Fprintf(&b, "files of %d: %s\n", i, strings.Join(files, " "))
	}
	if len(f.Shared) > 0 {
		fmt.Fprintf(&b, "shared files: %s\n", strings.Join(f.Shared, " "))
	}
	for _, n := range f.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	return b.String()
}

// This machine has what every machine has.
func TestFindHere(t *testing.T) {
	t.Parallel()
	a := machine.Find("/", t.TempDir()).Attributes
	for _, k := range []string{"kernel", "hostname", "cpu.threads", "memory.bytes"} {
		if a[k] == "" {
			t.Errorf("no %s in %v", k, a)
		}
	}
	if a["arch"] != runtime.GOARCH || a["os"] != "linux" {
		t.Errorf("attributes %v", a)
	}
	for k, v := range a {
		if err := schema.CheckLabel(k, v); err != nil {
			t.Error(err)
		}
	}
}

func TestReserve(t *testing.T) {
	t.Parallel()
	const mib, gib = 1 << 20, 1 << 30
	for _, tc := range []struct{ all, want schema.Resources }{
		{schema.Resources{}, schema.Resources{}},
		{schema.Resources{CPUMilli: 1000, RAMBytes: 256 * mib, DiskBytes: 100 * mib}, schema.Resources{CPUMilli: 50, RAMBytes: 64 * mib, DiskBytes: 5 * mib}},
		{schema.Resources{CPUMilli: 4000, RAMBytes: 8 * gib, DiskBytes: 100 * gib}, schema.Resources{CPUMilli: 50, RAMBytes: 8 * gib / 20, DiskBytes: 5 * gib}},
		{schema.Resources{CPUMilli: 64000, RAMBytes: 256 * gib, DiskBytes: 4096 * gib}, schema.Resources{CPUMilli: 640, RAMBytes: 4 * gib, DiskBytes: 10 * gib}},
	} {
		if got := machine.Reserve(tc.all); got != tc.want {
			t.Errorf("of %+v: %+v, want %+v", tc.all, got, tc.want)
		}
	}
	all := schema.Resources{CPUMilli: 1000, RAMBytes: gib}
	if _, err := machine.Less(all, schema.Resources{RAMBytes: gib}); err == nil || !strings.Contains(err.Error(), "ramBytes are kept for the system") {
		t.Errorf("a reserve of all: %v", err)
	}
	if rest, err := machine.Less(all, schema.Resources{CPUMilli: 100}); err != nil || rest != (schema.Resources{CPUMilli: 900, RAMBytes: gib}) {
		t.Errorf("rest %+v, %v", rest, err)
	}
}
