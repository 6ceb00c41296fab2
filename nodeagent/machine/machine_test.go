package machine

import (
	"runtime"
	"strings"
	"testing"

	"github.com/musterhq/muster/schema"
)

func TestFind(t *testing.T) {
	t.Parallel()
	info, err := Find(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.CheckName(info.Name); err != nil {
		t.Errorf("name: %v", err)
	}
	if len(info.Boot) != 36 {
		t.Errorf("boot %q, want a UUID", info.Boot)
	}
	c := info.Capacity
	if c.CPUMilli != int64(runtime.NumCPU())*1000 || c.RAMBytes < 16<<20 || c.DiskBytes <= 0 {
		t.Errorf("capacity %+v", c)
	}
	for _, k := range []string{"arch", "os", "kernel"} {
		if info.Attributes[k] == "" {
			t.Errorf("no attribute %s in %v", k, info.Attributes)
		}
	}
	if _, err := Find("/does/not/exist"); err == nil {
		t.Error("a directory that does not exist has disk space")
	}
}

func TestCleanName(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"node1":                  "node1",
		"Node1.Example.COM":      "node1-example-com",
		"_x_":                    "x",
		"…":                      "",
		strings.Repeat("a.", 40): strings.Repeat("a-", 31) + "a",
	} {
		got := CleanName(in)
		if got != want {
			t.Errorf("CleanName(%q) = %q, want %q", in, got, want)
		}
		if err := schema.CheckName(got); got != "" && err != nil {
			t.Error(err)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	if n, err := parseMemTotal([]byte("MemFree: 1 kB\nMemTotal:       2048 kB\n")); err != nil || n != 2<<20 {
		t.Errorf("MemTotal %d, %v", n, err)
	}
	if _, err := parseMemTotal([]byte("MemFree: 1 kB\n")); err == nil {
		t.Error("no MemTotal, no error")
	}
	for in, want := range map[string]int64{"max\n": 7, "5\n": 5, "9223372036854771712\n": 9223372036854771712, "": 7} {
		if got := parseLimit([]byte(in), 7); got != want {
			t.Errorf("parseLimit(%q) = %d, want %d", in, got, want)
		}
	}
}
