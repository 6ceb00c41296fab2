package cni_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/network/cni"
	"github.com/musterhq/muster/nodeagent/network/namespace"
	"github.com/musterhq/muster/schema"
)

var rounds = flag.Int("rounds", 10, "how many networks are made and taken back")

// debian is where Debian's package of plugins has them.
const debian = "/usr/lib/cni"

// inMachine runs the calling test in a process of its own whose network is a new one: plugins change that of
// whoever calls them. It reports whether this is that process.
func inMachine(t *testing.T) bool {
	t.Helper()
	if os.Getenv("MUSTER_TEST_MACHINE") != "" {
		if err := namespace.Set("/proc/sys/net/ipv4/ip_forward", "1"); err != nil {
			t.Fatal(err)
		}
		return true
	}
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make network namespaces")
	}
	if _, err := os.Stat(filepath.Join(debian, "bridge")); err != nil {
		t.Skip("needs Debian's containernetworking-plugins")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", fmt.Sprint("-rounds=", *rounds))
	cmd.Env = append(os.Environ(), "MUSTER_TEST_MACHINE=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // with which the process would be killed
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	return false
}

// machine is what has networks by plugins.
type machine struct {
	t      *testing.T
	dir    string
	leases string // of host-local
	path   []string
	*cni.Networks
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, dir: filepath.Join(t.TempDir(), "cni"), leases: t.TempDir(), path: []string{t.TempDir(), debian}}
	m.open()
	t.Cleanup(func() { m.must(m.Withdraw()) })
	return m
}

// open begins again, as an agent does.
func (m *machine) open() {
	m.t.Helper()
	var err error
	m.Networks, err = cni.Open(cni.Config{
		Cell: "c", Agent: "a", Dir: m.dir, Path: m.path, Within: 3 * time.Second, Taken: func(a netip.Addr) bool { return a == netip.MustParseAddr("10.64.9.9") },
		Log: slog.New(slog.NewTextHandler(m.t.Output(), nil)),
	})
	m.must(err)
}

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// plugin writes a plugin that is a script.
func (m *machine) plugin(name, script string) {
	m.t.Helper()
	m.must(os.WriteFile(filepath.Join(m.path[0], name), []byte("#!/bin/sh\n"+script), 0o755))
}

// of returns a list of one plugin with host-local, and with more fields.
func (m *machine) of(plugin, more string) *schema.CNI {
	return &schema.CNI{CNIVersion: "1.0.0", Plugins: []raw{raw(fmt.Sprintf(
		`{"type": %q, "capabilities": {"ipRanges": true}, "ipam": {"type": "host-local", "dataDir": %q, "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}%s}`, plugin, m.leases, more))}}
}

type raw = json.RawMessage

var subnets = []netip.Prefix{netip.MustParsePrefix("10.64.1.0/24"), netip.MustParsePrefix("fd64::1:0/112")}

// left returns what there is of networks: links beside the bridge, leases and files.
func (m *machine) left() string {
	m.t.Helper()
	var out []string
	links, err := netlink.LinkList()
	m.must(err)
	for _, l := range links {
		if l.Type() == "veth" {
			out = append(out, l.Attrs().Name)
		}
	}
	m.must(filepath.WalkDir(m.leases, func(path string, d os.DirEntry, err error) error {
		if _, ipErr := netip.ParseAddr(filepath.Base(path)); err == nil && !d.IsDir() && ipErr == nil {
			out = append(out, filepath.Base(path))
		}
		return err
	}))
	files, err := os.ReadDir(m.dir)
	m.must(err)
	for _, f := range files {
		out = append(out, f.Name())
	}
	return strings.Join(out, " ")
}

// runs has Run at work until the test ends.
func (m *machine) runs() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); m.Run(ctx) }()
	m.t.Cleanup(func() { cancel(); <-ended })
}

// until waits for a condition.
func (m *machine) until(what string, is func() bool) {
	m.t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			m.t.Fatalf("not so within a minute: %s; there is %s", what, m.left())
		}
	}
}

// send sends a packet of UDP in a task's network, from an address that it need not have.
func send(task cni.Task, from, to netip.AddrPort) error {
	return namespace.In(task.Namespace, func(int) error {
		lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			var err error
			return errors.Join(c.Control(func(fd uintptr) {
				err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_FREEBIND, 1), unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1))
			}), err)
		}}
		c, err := lc.ListenPacket(context.Background(), "udp", from.String())
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.WriteTo([]byte("x"), net.UDPAddrFromAddrPort(to))
		return err
	})
}

// TestNetworks: tasks have addresses of the machine's subnets, reach each other by the machine alone, and cannot send with other
// addresses; and when they have left, nothing is left.
func TestNetworks(t *testing.T) {
	if !inMachine(t) {
		return
	}
	for plugin, more := range map[string]string{"bridge": `, "bridge": "cell0", "isGateway": true`, "ptp": ""} {
		m := newMachine(t)
		var tasks []cni.Task
		for i := range 2 {
			task, err := m.Join(subnets, m.of(plugin, more), fmt.Sprint("k", i), "crew/web")
			m.must(err)
			want := []netip.Addr{netip.MustParseAddr(fmt.Sprint("10.64.1.", 3+i)), netip.MustParseAddr(fmt.Sprint("fd64::1:", 3+i))}
			if again, err := m.Join(subnets, m.of(plugin, more), fmt.Sprint("k", i), "crew/web"); err != nil || again.Namespace != task.Namespace || !slices.Equal(task.Addresses, want) {
				t.Fatalf("%s: %v is at %v, again at %v: want %v (%v)", plugin, task.Namespace, task.Addresses, again.Addresses, want, err)
			}
			tasks = append(tasks, task)
		}
		for i, family := range []struct{ gateway, other, own string }{{"10.64.1.2", "10.64.1.77", "169.254.3.4"}, {"fd64::1:2", "fd64::1:77", "fe80::77"}} {
			var conn net.PacketConn
			at := tasks[1].Addresses[i]
			m.must(namespace.In(tasks[1].Namespace, func(int) (err error) {
				conn, err = net.ListenPacket("udp", netip.AddrPortFrom(at, 7).String())
				return err
			}))
			m.must(namespace.In(tasks[0].Namespace, func(int) error {
				routes, err := netlink.RouteGet(at.AsSlice())
				if err != nil || len(routes) != 1 || routes[0].Gw.String() != family.gateway {
					t.Errorf("%s: %s is reached by %v: want by %s (%v)", plugin, at, routes, family.gateway, err)
				}
				return nil
			}))
			me := tasks[0].Addresses[i]
			m.must(send(tasks[0], netip.AddrPortFrom(me, 9), netip.AddrPortFrom(at, 7)))
			buf := make([]byte, 9)
			m.must(conn.SetReadDeadline(time.Now().Add(time.Minute)))
			_, from, err := conn.ReadFrom(buf)
			if err != nil || netip.MustParseAddrPort(from.String()).Addr() != me {
				t.Errorf("%s: a packet of %s comes from %v: %v", plugin, me, from, err)
			}
			if err := send(tasks[0], netip.AddrPortFrom(netip.MustParseAddr(family.other), 9), netip.AddrPortFrom(at, 7)); !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENETUNREACH) { // of IPv4 there is no way to begin with
				t.Errorf("%s: it can send from %s: %v", plugin, family.other, err)
			}
			extra := netip.MustParseAddr([]string{"10.64.1.78", "fd64::1:78"}[i]) // as a router may give one
			m.must(namespace.In(tasks[0].Namespace, func(int) error {
				l, err := netlink.LinkByName("eth0")
				if err != nil {
					return err
				}
				return netlink.AddrAdd(l, &netlink.Addr{IPNet: &net.IPNet{IP: extra.AsSlice(), Mask: net.CIDRMask(extra.BitLen(), extra.BitLen())}, Flags: unix.IFA_F_NODAD})
			}))
			if err := send(tasks[0], netip.AddrPortFrom(extra, 9), netip.AddrPortFrom(at, 7)); !errors.Is(err, unix.EPERM) {
				t.Errorf("%s: it can send from %s, which nobody has given it: %v", plugin, extra, err)
			}
			m.must(send(tasks[0], netip.AddrPortFrom(netip.MustParseAddr([]string{"127.0.0.1", "::1"}[i]), 9), netip.AddrPortFrom(netip.MustParseAddr([]string{"127.0.0.1", "::1"}[i]), 7)))
			m.must(conn.Close())
		}
		for _, to := range []string{"255.255.255.255:7", "10.64.1.255:7", "224.0.0.7:7"} {
			if err := send(tasks[0], netip.AddrPortFrom(tasks[0].Addresses[0], 9), netip.MustParseAddrPort(to)); !errors.Is(err, unix.EPERM) {
				t.Errorf("%s: it can send to %s: %v", plugin, to, err)
			}
		}
		for _, to := range []string{"[fe80::1%eth0]:7", "[ff02::1%eth0]:7"} {
			if err := send(tasks[0], netip.AddrPortFrom(tasks[0].Addresses[1], 9), netip.MustParseAddrPort(to)); !errors.Is(err, unix.EPERM) {
				t.Errorf("%s: it can send to %s: %v", plugin, to, err)
			}
		}
		for i := range 2 {
			m.must(m.Leave(fmt.Sprint("k", i)))
		}
		if left := m.left(); left != "" || m.Any() {
			t.Errorf("%s: left behind: %s", plugin, left)
		}
	}
}

// TestBegunAgain: who begins again finds what is complete, takes back what is not, and after a restart of the machine all.
func TestBegunAgain(t *testing.T) {
	if !inMachine(t) {
		return
	}
	m := newMachine(t)
	by := m.of("ptp", "")
	task, err := m.Join(subnets, by, "k", "crew/web")
	m.must(err)
	m.plugin("slow", "exec sleep 1000")
	if os.Getenv("MUSTER_TEST_KILLED") == "" { // another agent, which is killed while plugins make a network
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilled$")
		cmd.Env = append(os.Environ(), "MUSTER_TEST_KILLED="+strings.Join([]string{m.dir, m.leases, m.path[0]}, ":"))
		m.must(cmd.Start())
		m.until("a second lease", func() bool { return strings.Contains(m.left(), "10.64.1.4") })
		m.must(cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
	}
	m.open()
	if again, ok := m.Find("k"); !ok || !again.Held() || again.Addresses[0] != task.Addresses[0] {
		t.Fatalf("it is not found: %v", again)
	}
	if _, ok := m.Find("killed"); ok {
		t.Fatal("what was not complete is found")
	}
	m.Keep([]string{"k"})
	m.plugin("slow", `[ "$CNI_COMMAND" = DEL ]`)
	m.runs()
	m.until("what was not complete is taken back", func() bool { return !strings.Contains(m.left(), "10.64.1.4") })
	if !strings.Contains(m.left(), "10.64.1.3") {
		t.Errorf("what is complete is taken back, too: %s", m.left())
	}
	m.must(unix.Unmount(task.Namespace, unix.MNT_DETACH)) // as a restart does
	m.open()
	m.Keep([]string{"k"})
	if _, ok := m.Find("k"); ok {
		t.Error("it is found without its namespace")
	}
	results, err := filepath.Glob(filepath.Join(m.dir, "*.cache", "results", "*"))
	if err != nil || len(results) != 1 {
		t.Fatalf("what is kept of its result is in %v: %v", results, err)
	}
	m.must(os.Truncate(results[0], 0)) // as one without power may
	m.runs()
	m.until("all is taken back", func() bool { return m.left() == "" })
}

// TestKilled is the agent that TestBegunAgain kills.
func TestKilled(t *testing.T) {
	where := strings.Split(os.Getenv("MUSTER_TEST_KILLED"), ":")
	if len(where) < 3 {
		return
	}
	m := &machine{t: t, dir: where[0], leases: where[1], path: []string{where[2], debian}}
	m.open()
	by := m.of("ptp", "")
	by.Plugins = append(by.Plugins, raw(`{"type": "slow"}`))
	_, err := m.Join(subnets, by, "killed", "crew/killed")
	t.Fatal("it was not killed: ", err)
}

// TestFaults: each way in which plugins can fail is said, and leaves nothing.
func TestFaults(t *testing.T) {
	if !inMachine(t) {
		return
	}
	m := newMachine(t)
	m.plugin("fails", `[ "$CNI_COMMAND" = DEL ] || { echo '{"cniVersion": "1.0.0", "code": 11, "msg": "no more room", "details": "in the rack"}'; exit 1; }`)
	m.plugin("crashes", `[ "$CNI_COMMAND" = DEL ] || { echo "panic: \033[31m" >&2; exit 2; }`)
	m.plugin("hangs", `[ "$CNI_COMMAND" = DEL ] || sleep 1000`)
	m.plugin("rubbish", `[ "$CNI_COMMAND" = DEL ] || echo "hello, world"`)
	m.plugin("floods", `[ "$CNI_COMMAND" = DEL ] || yes`)
	m.plugin("nothing", `[ "$CNI_COMMAND" = DEL ] || echo '{"cniVersion": "1.0.0"}'`)
	m.plugin("lies", `[ "$CNI_COMMAND" = DEL ] || echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.64.1.3/24", "gateway": "10.64.1.2"}]}'`)
	m.plugin("strange", `[ "$CNI_COMMAND" = DEL ] || echo '{"cniVersion": "9.9.9"}'`)
	m.plugin("second", `[ "$CNI_COMMAND" = DEL ] || { cat | sed 's/.*"prevResult"://; s/,"type":"second"}$//'; nsenter --net="$CNI_NETNS" ip link add net1 up type veth peer name net2; }`)
	first := m.of("ptp", "").Plugins[0]
	for name, want := range map[string]string{
		"fails": "no more room; in the rack", "crashes": `exit status 2: "panic: \\x1b[31m"`, "hangs": "it did not end within 3s, and was killed",
		"rubbish": `it printed no result of CNI: "hello, world"`, "floods": "it did not end within 3s", "nothing": "they gave no address",
		"lies": "there is no eth0", "second": "they have made net1 beside eth0: more than one interface for a task is not supported", "strange": "9.9.9", "missing": "there is no missing in " + m.path[0] + ", " + debian,
	} {
		by := &schema.CNI{CNIVersion: "1.0.0", Plugins: []raw{raw(fmt.Sprintf(`{"type": %q}`, name))}}
		if name != "lies" && name != "nothing" { // after one that works
			by.Plugins = []raw{first, by.Plugins[0]}
		}
		_, err := m.Join(subnets, by, name, "crew/web/0")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "network of crew/web/0: ") {
			t.Errorf("%s: %v: want %q", name, err, want)
		}
		if name == "missing" { // which cannot take it back, either, until it is there
			m.plugin("missing", "")
			m.must(m.Leave("missing"))
		}
		if left := m.left(); left != "" {
			t.Errorf("%s: left behind: %s", name, left)
		}
	}
	for _, x := range []struct{ more, want string }{
		{`, "bridge": "cell1"`, "which is not an address of this machine: with bridge, set isGateway: true"},
		{`, "isGateway": true, "capabilities": {}`, "no IP ranges specified\nand taking it back has failed, which is tried again: "}, // until the list is repaired
		{
			`, "bridge": "cell2", "isGateway": true, "ipam": {"type": "host-local", "dataDir": "` + m.leases + `", "subnet": "10.65.0.0/24"}, "capabilities": {}`,
			"10.65.0.2 is not of the addresses that this machine has for tasks, 10.64.1.0/24 from 10.64.1.3 on",
		},
	} {
		if _, err := m.Join(subnets[:1], m.of("bridge", x.more), "k", "crew/web/0"); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v: want %q", x.more, err, x.want)
		}
		if left := m.left(); (left == "") != !strings.Contains(x.want, "again") {
			t.Errorf("%s: left behind: %s", x.more, left)
		}
	}
}

// TestTaken: an address that another has is not used twice.
func TestTaken(t *testing.T) {
	if !inMachine(t) {
		return
	}
	m := newMachine(t)
	task, err := m.Join(subnets[:1], m.of("ptp", ""), "k", "crew/web/0")
	m.must(err)
	if !m.Has(task.Addresses[0]) || !m.Has(netip.MustParseAddr("10.64.1.2")) || m.Has(netip.MustParseAddr("10.64.1.4")) {
		t.Error("it does not know which addresses it has")
	}
	m.must(os.RemoveAll(m.leases)) // which somebody has lost
	m.must(os.Mkdir(m.leases, 0o755))
	if next, err := m.Join(subnets[:1], m.of("ptp", ""), "k2", "crew/web/1"); err != nil || next.Addresses[0] != netip.MustParseAddr("10.64.1.4") {
		t.Errorf("where the plugin gives the same address first: %v, %v", next, err)
	}
	m.plugin("forgets", "rm -rf "+m.leases+"/*; exec "+debian+"/ptp")
	if _, err := m.Join(subnets[:1], m.of("forgets", ""), "k4", "crew/web/3"); err == nil || !strings.Contains(err.Error(), "10.64.1.3, which another task on this machine has") {
		t.Errorf("where the plugin gives no other address: %v", err)
	}
	if _, err := m.Join([]netip.Prefix{netip.MustParsePrefix("10.64.9.7/29").Masked()}, m.of("ptp", ""), "k3", "crew/web/2"); err != nil {
		t.Error(err)
	}
}

// TestCollect: plugins of version 1.1.0 receive which networks there are.
func TestCollect(t *testing.T) {
	if !inMachine(t) {
		return
	}
	m := newMachine(t)
	said := filepath.Join(t.TempDir(), "said")
	m.plugin("hears", `in=$(cat); [ "$CNI_COMMAND" = GC ] && echo "$in" >`+said+`; [ "$CNI_COMMAND" = ADD ] && echo "$in" | sed 's/.*"prevResult"://; s/,"type":"hears"}$//'; exit 0`)
	task, err := m.Join(subnets, m.of("ptp", ""), "k", "crew/web/0")
	m.must(err)
	by := &schema.CNI{CNIVersion: "1.1.0", Plugins: []raw{raw(`{"type": "hears"}`)}}
	if _, err := m.Join(subnets, by, "k2", "crew/web/1"); err == nil {
		t.Fatal("a plugin that gives nothing gave a network")
	}
	m.runs()
	m.until("the plugin hears of it", func() bool { _, err := os.Stat(said); return err == nil })
	m.until("all of it", func() bool {
		b, _ := os.ReadFile(said)
		return strings.Contains(string(b), `"containerID":"`+filepath.Base(task.Namespace)+`"`)
	})
}

// TestRounds: many networks that are made, and taken back or forgotten, leave nothing.
func TestRounds(t *testing.T) {
	if !inMachine(t) {
		return
	}
	m := newMachine(t)
	by := m.of("bridge", `, "bridge": "cell0", "isGateway": true`)
	for i := range *rounds {
		_, err := m.Join(subnets, by, fmt.Sprint("k", i), "crew/web/0")
		m.must(err)
		if i%3 == 0 {
			m.open()
		}
		if i%3 == 1 {
			m.must(m.Leave(fmt.Sprint("k", i)))
		}
	}
	m.must(m.Withdraw())
	if left := m.left(); left != "" || m.Any() {
		t.Errorf("left behind: %s", left)
	}
}
