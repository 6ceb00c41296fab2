package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// network is hosts in network namespaces of their own, on one bridge. Its hub has
// the bridge; it is a host too.
type network struct {
	t     *testing.T
	names []string // of namespaces
}

// newNetwork makes the hub, and takes all away at the end of the test.
func newNetwork(t *testing.T) *network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can make network namespaces")
	}
	for _, program := range []string{"ip", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%v: packages iproute2 and util-linux", err)
		}
	}
	n := &network{t: t}
	t.Cleanup(n.close)
	hub := n.host()
	n.inside(hub, "link", "add", "br0", "type", "bridge")
	n.inside(hub, "addr", "add", address0(0)+"/24", "dev", "br0")
	n.inside(hub, "link", "set", "br0", "up")
	return n
}

// hosts counts the namespaces of this process.
var hosts atomic.Int64

// address0 returns the address of a host by its number; the hub is 0.
func address0(number int) string { return fmt.Sprintf("10.99.0.%d", number+1) }

// host makes a namespace and returns its number.
func (n *network) host() int {
	n.t.Helper()
	number := len(n.names)
	name := fmt.Sprintf("muster-%d-%d", os.Getpid(), hosts.Add(1))
	n.names = append(n.names, name)
	n.ip("netns", "add", name)
	n.inside(number, "link", "set", "lo", "up")
	return number
}

// attach makes a host with a cable to the hub's bridge.
func (n *network) attach() int {
	n.t.Helper()
	number := n.host()
	port := fmt.Sprintf("port%d", number)
	n.inside(0, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", n.names[number])
	n.inside(0, "link", "set", port, "master", "br0", "up")
	n.inside(number, "addr", "add", address0(number)+"/24", "dev", "eth0")
	n.inside(number, "link", "set", "eth0", "up")
	return number
}

func (n *network) ip(args ...string) {
	n.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (n *network) inside(number int, args ...string) {
	n.t.Helper()
	n.ip(append([]string{"-n", n.names[number]}, args...)...)
}

// on returns a command line that runs another on a host. Only the network is
// another there: `ip netns exec` would hide the cgroups as well.
func (n *network) on(number int, args ...string) []string {
	return append([]string{"nsenter", "--net=" + filepath.Join("/run/netns", n.names[number]), "--"}, args...)
}

// close removes the namespaces, and what is in them with them.
func (n *network) close() {
	for _, name := range n.names {
		if out, err := exec.Command("ip", "netns", "delete", name).CombinedOutput(); err != nil {
			n.t.Errorf("ip netns delete %s: %v\n%s", name, err, out)
		}
	}
	for _, name := range n.names {
		if _, err := os.Stat(filepath.Join("/run/netns", name)); err == nil {
			n.t.Errorf("left behind: network namespace %s", name)
		}
	}
}
