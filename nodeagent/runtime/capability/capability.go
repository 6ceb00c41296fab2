package capability

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/schema"
)

// numbers are the kernel's.
var numbers = map[string]uint{
	"CHOWN": unix.CAP_CHOWN, "DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE, "FOWNER": unix.CAP_FOWNER, "FSETID": unix.CAP_FSETID, "KILL": unix.CAP_KILL,
	"SETGID": unix.CAP_SETGID, "SETUID": unix.CAP_SETUID, "SETPCAP": unix.CAP_SETPCAP, "NET_BIND_SERVICE": unix.CAP_NET_BIND_SERVICE,
	"NET_RAW": unix.CAP_NET_RAW, "NET_ADMIN": unix.CAP_NET_ADMIN, "IPC_LOCK": unix.CAP_IPC_LOCK, "SYS_NICE": unix.CAP_SYS_NICE, "DAC_READ_SEARCH": unix.CAP_DAC_READ_SEARCH,
}

// Root returns those that root of the container of t has.
func Root(t *schema.TaskSpec) []string { return t.Capabilities.Left(schema.ContainerCapabilities()) }

// Bits returns capabilities as bits. Nothing comes of names that no task can have.
func Bits(names []string) (out uint64) {
	for _, name := range names {
		if n, ok := numbers[name]; ok {
			out |= 1 << n
		}
	}
	return out
}

// Linux returns names as the configuration of an OCI runtime has them.
func Linux(names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = "CAP_" + name
	}
	return out
}

// Added returns, as bits, those that t adds, whoever its user is. What its way of running cannot
// have is not among them, whatever the master sends. With NET_ADMIN a process that has a link to
// its machine makes and removes interfaces there: the link names the other namespace, and both are root's.
func Added(t *schema.TaskSpec) uint64 {
	if t.Capabilities == nil {
		return 0
	}
	may := schema.MachineCapabilities()
	if t.Container != nil {
		may = slices.Concat(schema.ContainerCapabilities(), schema.NetworkCapabilities())
	}
	linked := t.Container == nil && (t.Isolation == nil || t.Isolation.Network != schema.NoNetwork)
	return Bits(slices.DeleteFunc(slices.Clone(t.Capabilities.Add), func(name string) bool {
		return !slices.Contains(may, name) || linked && name == "NET_ADMIN"
	}))
}

// Offered returns those of names that a machine can offer, and the agent has itself.
func Offered(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		n, ok := numbers[name]
		return !ok || !slices.Contains(schema.MachineCapabilities(), name) || !host.Holds(n)
	})
}
