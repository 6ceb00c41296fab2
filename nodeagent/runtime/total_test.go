package runtime_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/schema"
)

// All tasks together are bounded in the group that holds theirs, and what they
// use already is never taken from them. The next agent leaves both as they are.
func TestLimitOfAllTasks(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.needGroups(t, "memory")
	p, dir := m.start(shell(0, "x=$(head -c 20000000 /dev/zero | tr '\\0' a); echo holds ${#x}; sleep 1000; echo $x"))
	says(t, dir, "holds")
	const limit = 512 << 20
	if err := m.host.Cgroups().LimitAll(schema.Resources{CPUMilli: 2000, RAMBytes: limit}); err != nil {
		t.Fatal(err)
	}
	checkLimitOfAll(t, dir, limit)
	next, r, err := openDir(m.dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Close(), next.Close()); err != nil {
		t.Error(err)
	}
	checkLimitOfAll(t, dir, limit)
	if err := m.host.Cgroups().LimitAll(schema.Resources{RAMBytes: 1}); err == nil || !strings.Contains(err.Error(), "tasks use") {
		t.Errorf("a limit below what is used: %v", err)
	}
	if exit := end(t, p); exit.OOM {
		t.Errorf("the task was killed for lack of memory: %+v", exit)
	}
}

// checkLimitOfAll checks the limits of the groups that hold the groups of the task in dir.
func checkLimitOfAll(t *testing.T, dir string, limit int64) {
	t.Helper()
	parents := map[string]bool{}
	b, err := os.ReadFile(filepath.Join(dir, keeper.SpecFile))
	if err != nil {
		t.Fatal(err)
	}
	var spec keeper.Spec
	if err := json.Unmarshal(b, &spec); err != nil {
		t.Fatal(err)
	}
	for _, group := range spec.Cgroups {
		parents[filepath.Dir(group)] = true
	}
	var got []string
	for parent := range parents {
		for name, want := range map[string]int64{"memory.max": limit, "memory.limit_in_bytes": limit, "cpu.shares": 2048, "cpu.weight": 79} {
			b, err := os.ReadFile(filepath.Join(parent, name))
			if err != nil {
				continue
			}
			got = append(got, name)
			if s := strings.TrimSpace(string(b)); s != strconv.FormatInt(want, 10) {
				t.Errorf("%s of all tasks is %s, want %d", name, s, want)
			}
		}
	}
	if len(got) < 2 {
		t.Errorf("only %v of %v are bounded", got, parents)
	}
}
