package runtime_test

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
	"golang.org/x/sys/unix"
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
				a := joining(shell(index, `readlink /proc/self/ns/net; cat /etc/resolv.conf; grep 10.64 /etc/hosts; echo $MUSTER_ADDRESS; sleep 100`), namespace, by)
				a.Job.Task.Isolation.User = user
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

// joining has the task of a run in a network namespace, by a runtime of containers if one is named.
func joining(a *schema.Assignment, namespace string, by schema.ContainerRuntime) *schema.Assignment {
	a.OwnNetwork, a.Job.Task.Isolation = true, &schema.Isolation{Network: schema.OwnNetwork}
	if by != "" {
		contained(a).Job.Task.Container.Runtime = by
	}
	a.Network = &schema.TaskNetwork{
		Namespace: namespace, Addresses: []netip.Addr{netip.MustParseAddr("10.64.0.2")}, Nameservers: []netip.Addr{netip.MustParseAddr("10.64.0.1")},
	}
	return a
}

// TestJoinNetworkKilled: with its keeper killed, nothing of a task is left in its network namespace or
// holds it, its end says why, and the next incarnation is in the same one.
func TestJoinNetworkKilled(t *testing.T) {
	t.Parallel()
	needRoot(t)
	m := newContainerMachine(t, withSpare)
	for index, by := range []schema.ContainerRuntime{"", schema.Crun, schema.Runc} {
		if by != "" && m.Attributes()[by.Attribute()] != "true" {
			continue
		}
		t.Run(cmp.Or(string(by), "process"), func(t *testing.T) {
			namespace := newNamespace(t)
			for incarnation := range 2 {
				a := joining(shell(index, "readlink /proc/self/ns/net; sleep 1000"), namespace, by)
				dir := place(t, m.dir, a, 1+incarnation)
				p, err := m.Start(t.Context(), dir, a)
				if err != nil {
					t.Fatal(err)
				}
				is, err := os.Stat(namespace)
				if err != nil {
					t.Fatal(err)
				}
				says(t, dir, fmt.Sprintf("net:[%d]\n", is.Sys().(*syscall.Stat_t).Ino))
				if len(holders(t, is)) == 0 {
					t.Fatal("nothing is seen in the namespace")
				}
				if err := unix.Kill(keeperOf(t, dir), unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
				if e := wait(t, p); e.Message != "its keeper was killed, and the task with it" || e.OOM {
					t.Errorf("ended with %v", e)
				}
				eventually(t, "the end of all in the namespace", func() bool { return len(holders(t, is)) == 0 })
				if now, err := os.Stat(namespace); err != nil || !os.SameFile(is, now) {
					t.Errorf("the namespace is another now: %v", err)
				}
			}
		})
	}
}

// holders are the processes in a network namespace.
func holders(t *testing.T, namespace os.FileInfo) (pids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		if is, err := os.Stat(name); err == nil && os.SameFile(is, namespace) {
			pids = append(pids, strings.Split(name, "/")[2])
		}
	}
	return pids
}
