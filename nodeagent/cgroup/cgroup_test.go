package cgroup_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/musterhq/muster/nodeagent/cgroup"
)

// TestOOMKills reads both versions' files; other lines and files count nothing.
func TestOOMKills(t *testing.T) {
	t.Parallel()
	v1, v2 := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		filepath.Join(v1, "memory.oom_control"): "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
		filepath.Join(v2, "memory.events"):      "low 0\nhigh 0\nmax 31\noom 5\noom_kill 3\noom_group_kill 0\n",
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := (cgroup.Dirs{v1, v2, "/none"}).OOMKills(); got != 5 {
		t.Errorf("OOMKills = %d, want 5", got)
	}
}
