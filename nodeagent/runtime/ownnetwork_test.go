package runtime_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
)

var namespaces atomic.Int64 // that tests of this process have made

// newNamespace makes a network namespace, with lo alone, and returns the path of the file that holds it.
func newNamespace(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("muster-runtime-%d-%d", os.Getpid(), namespaces.Add(1))
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		t.Skipf("NOT TESTED: needs root, and iproute2: %v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("ip", "netns", "delete", name).CombinedOutput(); err != nil {
			t.Errorf("ip netns delete %s: %v\n%s", name, err, out)
		}
	})
	return filepath.Join("/run/netns", name)
}

// TestJoinNetwork: processes, what runs beside them, and containers by each runtime are in the
// network namespace that they are given, and find whom to ask for names.
func TestJoinNetwork(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can make network namespaces")
	}
	m, index := newContainerMachine(t), 0
	for _, by := range []schema.ContainerRuntime{"", schema.Crun, schema.Runc} {
		for _, user := range []bool{false, true} {
			if by != "" && (user || m.Attributes()[by.Attribute()] != "true") {
				continue
			}
			t.Run(fmt.Sprint(by, user), func(t *testing.T) {
				namespace := newNamespace(t)
				want, err := exec.Command("stat", "-L", "-c", "net:[%i]", namespace).Output()
				if err != nil {
					t.Fatal(err)
				}
				index++
				a := shell(index, `readlink /proc/self/ns/net; cat /etc/resolv.conf; grep 10.64 /etc/hosts; echo $MUSTER_ADDRESS; sleep 100`)
				a.OwnNetwork, a.Job.Task.Isolation = true, &schema.Isolation{Network: schema.OwnNetwork, User: user}
				if by != "" {
					contained(a).Job.Task.Container.Runtime = by
					a.Job.Task.Isolation.User = false
				}
				a.Network = &schema.TaskNetwork{
					Namespace: namespace, Addresses: []netip.Addr{netip.MustParseAddr("10.64.0.2")}, Nameservers: []netip.Addr{netip.MustParseAddr("10.64.0.1")},
				}
				p, dir := m.start(a)
				host, err := os.Hostname()
				if err != nil {
					t.Fatal(err)
				}
				says(t, dir, string(want)+"nameserver 10.64.0.1\noptions ndots:0\n10.64.0.2 "+host+"\n10.64.0.2\n")
				out, err := p.Run(t.Context(), []string{"readlink", "/proc/self/ns/net"}, time.Minute)
				if err != nil || strings.TrimSpace(out) != strings.TrimSpace(string(want)) {
					t.Errorf("a command beside it is in %q (%v), want %q", out, err, want)
				}
				end(t, p)
			})
		}
	}
}
