package capability

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/schema"
)

// TestAdded: what a way of running cannot have is not given, whatever a master sends.
func TestAdded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		network   schema.Network
		contained bool
		add       string
		want      uint64
	}{
		"a process by its machine's network": {"", false, "NET_ADMIN", 0},
		"a process with a link":              {schema.OwnNetwork, false, "NET_ADMIN", 0},
		"a process without a network":        {schema.NoNetwork, false, "NET_ADMIN", 1 << unix.CAP_NET_ADMIN},
		"a container":                        {schema.NoNetwork, true, "NET_ADMIN", 1 << unix.CAP_NET_ADMIN},
		"packets of a process with a link":   {schema.OwnNetwork, false, "NET_RAW", 1 << unix.CAP_NET_RAW},
		"files of others":                    {"", false, "DAC_OVERRIDE", 0},
		"memory, of a container":             {"", true, "IPC_LOCK", 0},
		"what nobody has":                    {"", false, "SYS_ADMIN", 0},
	} {
		task := &schema.TaskSpec{Isolation: &schema.Isolation{Network: c.network}, Capabilities: &schema.Capabilities{Add: []string{c.add}}}
		if c.contained {
			task.Container = &schema.Container{}
		}
		if got := Added(task); got != c.want {
			t.Errorf("%s: %s is %#x, want %#x", name, c.add, got, c.want)
		}
	}
}
