package runtime_test

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// linked is the network namespace of a task, and that of its machine, to which it has a link as an agent makes them.
type linked struct {
	t             *testing.T
	task, machine string // files that hold them
}

// newLinked makes one.
func newLinked(t *testing.T) *linked {
	t.Helper()
	l := &linked{t, newNamespace(t), newNamespace(t)}
	l.in(l.machine, "ip link set lo up")
	l.in(l.task, "ip link set lo up")
	l.link(1400)
	return l
}

// link makes the link, of an MTU.
func (l *linked) link(mtu int) {
	l.t.Helper()
	const machine, task = "0a:58:0a:40:00:01", "0a:58:0a:40:00:02"
	size := strconv.Itoa(mtu)
	l.in(l.machine, "ip link add task0 address "+machine+" mtu "+size+" type veth peer name eth0 address "+task+" mtu "+size+" netns "+filepath.Base(l.task)+`
		ip link set task0 up; ip addr add 10.64.0.1/32 dev task0; ip -6 addr add fd64::1/128 dev task0 nodad
		ip neigh add 10.64.0.2 lladdr `+task+` dev task0 nud permanent; ip neigh add fd64::2 lladdr `+task+` dev task0 nud permanent
		ip route add 10.64.0.2/32 dev task0 advmss 1360; ip -6 route add fd64::2/128 dev task0 advmss 1340`)
	l.in(l.task, `ip link set eth0 up; ip addr add 10.64.0.2/32 dev eth0; ip -6 addr add fd64::2/128 dev eth0 nodad
		ip neigh add 169.254.1.1 lladdr `+machine+` dev eth0 nud permanent; ip neigh add fe80::1 lladdr `+machine+` dev eth0 nud permanent
		ip route add default via 169.254.1.1 dev eth0 onlink src 10.64.0.2; ip -6 route add default via fe80::1 dev eth0 onlink src fd64::2`)
}

// in runs a script in one of them, which must succeed.
func (l *linked) in(namespace, script string) string {
	l.t.Helper()
	out, err := l.try(namespace, script)
	if err != nil {
		l.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}

func (l *linked) try(namespace, script string) (string, error) {
	cmd := exec.CommandContext(l.t.Context(), "ip", "netns", "exec", filepath.Base(namespace), "sh", "-ec", script)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// serve has the machine answer at port 81.
func (l *linked) serve() {
	l.t.Helper()
	cmd := exec.Command("ip", "netns", "exec", filepath.Base(l.machine), "busybox", "nc", "-ll", "-p", "81", "-e", "echo", "hello")
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
}

// fetch has the machine get a file from the task, by both families.
func (l *linked) fetch() {
	l.t.Helper()
	for _, at := range []string{"10.64.0.2", "fd64::2"} {
		eventually(l.t, "the file from "+at, func() bool {
			out, err := l.try(l.machine, `printf 'GET /large HTTP/1.0\r\n\r\n' | busybox nc -w 60 `+at+` 8080 | tr -dc '\0' | wc -c`)
			return err == nil && out == "3000000\n"
		})
	}
}

// testFollows: the link's MTU becomes less, and the link is lost and made anew with a larger one, as an agent does
// it. New connections have segments that fit, although the kernel goes by what it has found at its start.
func (l *linked) testFollows() {
	l.t.Helper()
	l.in(l.machine, "ip link set task0 mtu 1300")
	l.in(l.task, "ip link set eth0 mtu 1300")
	eventually(l.t, "a limit of 1300 bytes", func() bool {
		rules := l.in(l.task, "nft list ruleset")
		return strings.Count(rules, "size set 1260") == 2 && strings.Count(rules, "size set 1240") == 2
	})
	l.in(l.machine, `nft "add table inet seen; add chain inet seen in { type filter hook input priority 0; }
		add rule inet seen in tcp sport 8080 tcp flags syn tcp option maxseg size > 1260 counter
		add rule inet seen in tcp sport 8080 tcp flags syn tcp option maxseg size <= 1260 counter"`)
	l.fetch()
	if out := l.in(l.machine, "nft list table inet seen; nft delete table inet seen"); strings.Count(out, "packets 0 ") != 1 || !strings.Contains(out, "> 1260 counter packets 0 ") {
		l.t.Errorf("segments that the task takes: %s", out)
	}
	l.in(l.machine, "ip link del task0")
	l.link(1500)
	eventually(l.t, "a pair of 1500 bytes, without a limit", func() bool {
		rules := l.in(l.task, "nft list ruleset")
		return strings.Count(rules, "fwd to") == 2 && !strings.Contains(rules, "maxseg") && strings.Contains(l.in(l.task, "ip -o link show kernel0"), "mtu 1500 ")
	})
	l.fetch()
	l.in(l.machine, "ip link set task0 mtu 1400")
	l.in(l.task, "ip link set eth0 mtu 1400")
}

// seen is what a namespace of a task has, for whoever joins it.
func (l *linked) seen() string {
	return l.in(l.task, "ip -o addr show eth0 scope global | sed 's,^[0-9]*,,'; ip route; ip -6 route show default; ip neigh show nud permanent")
}

// testRunscNetwork: a kernel takes what comes to its task's network, of IPv4 and IPv6, and sends from there, with the hardware
// address that the machine knows; so the machine's rules hold. With its keeper killed, too, the network is as it was.
func testRunscNetwork(t *testing.T, m *machine) {
	t.Helper()
	l := newLinked(t)
	l.serve()
	before := l.seen()
	for incarnation := range 2 {
		a := joining(shell(0, `ip addr show eth0 | grep -o 'inet6* [^ ]*\|mtu 1400' | sort; cat /etc/resolv.conf
			mkdir -p www && head -c 3000000 /dev/zero >www/large && busybox httpd -p 8080 -h www
			echo up; exec sleep 1000`), l.task, "")
		dir := place(t, m.dir, a, 1+incarnation)
		p, err := m.Start(t.Context(), dir, a)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { end(t, p) })
		says(t, dir, "up")
		if want, got := "inet 10.64.0.2/32\ninet6 fd64::2/128\nmtu 1400\nnameserver 10.64.0.1\noptions ndots:0\nup\n", said(t, dir); got != want {
			t.Errorf("it has %q, want %q", got, want)
		}
		l.fetch()
		for _, at := range []string{"10.64.0.1", "fd64::1"} {
			if out, err := p.Run(t.Context(), []string{"busybox", "nc", "-w", "60", at, "81"}, patience); err != nil || out != "hello\n" {
				t.Errorf("the machine answers at %s: %q, %v", at, out, err)
			}
		}
		l.in(l.machine, `nft "add table inet guard; add chain inet guard in { type filter hook input priority 0; }; add rule inet guard in tcp dport 9 counter reject with tcp reset"`)
		if out, err := p.Run(t.Context(), []string{"busybox", "nc", "-w", "60", "10.64.0.1", "9"}, patience); err == nil || !strings.Contains(out, "refused") {
			t.Errorf("what the machine refuses: %q, %v", out, err)
		}
		if out := l.in(l.machine, "nft list table inet guard; nft delete table inet guard"); !strings.Contains(out, "packets 1 ") {
			t.Errorf("the machine's rules have seen %s", out)
		}
		if incarnation == 0 {
			if err := unix.Kill(keeperOf(t, dir), unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			wait(t, p)
		} else {
			l.testFollows()
			end(t, p)
		}
		eventually(t, "the network as it was", func() bool { return l.seen() == before && l.in(l.task, "nft list ruleset") == "" })
		eventually(t, "the end of the pair", func() bool { return !strings.Contains(l.in(l.task, "ip -o link"), "kernel0") })
		if out, err := l.try(l.machine, "busybox nc -w 20 10.64.0.2 8080 </dev/null"); err == nil || !strings.Contains(out, "refused") {
			t.Errorf("after its end: %q, %v: nobody refuses", out, err)
		}
	}
}
