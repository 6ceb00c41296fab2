package loop_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// TestNodeHog: a task that wants more than the cores of its NUMA node gets those of all.
func TestNodeHog(t *testing.T) {
	t.Parallel()
	h := newHogs(t, nodeagent.NUMANode{ID: 0, Cores: []int{0}, Memory: 1}, nodeagent.NUMANode{ID: 1, Cores: []int{1}, Memory: 1})
	hog := h.task("cpu", schema.Service, 500)
	h.assign(hog)
	cores := func(pid int) string {
		b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status") // "" once it has ended
		_, list, _ := strings.Cut(string(b), "Cpus_allowed_list:")
		list, _, _ = strings.Cut(list, "\n")
		return strings.TrimSpace(list)
	}
	h.until("it runs on one node", hog.Generation, func(s schema.TaskStatus) bool {
		return isRunning(s) && strings.HasPrefix(s.Note, "it runs on cores of NUMA node ")
	})
	h.until("it has all cores", hog.Generation, func(s schema.TaskStatus) bool {
		return isRunning(s) && s.Note == "" && strings.ContainsAny(cores(s.PID), "-,")
	})
}
