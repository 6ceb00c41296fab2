package runtime_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/musterhq/muster/schema"
)

// capabilitySets are those of the process that reads them, and its user.
const capabilitySets = `id -u; grep -E "Cap|NoNewPrivs" /proc/self/status | cut -f2`

// setsOf is what capabilitySets says of a user that has a set for good, of which what it
// executes has all.
func setsOf(user, set string, ambient bool) string {
	none := strings.Repeat("0", len(set))
	handed := none
	if ambient {
		handed = set
	}
	return strings.Join([]string{user, set, set, set, set, handed, "1", ""}, "\n")
}

// withCapabilities lets a machine offer some.
func withCapabilities(names ...string) func(*config) {
	return func(c *config) { c.Capabilities = names }
}

// TestCapabilities: a task has those of its way of running, less what it drops, and what it adds
// whoever its user is; commands beside it have the same.
func TestCapabilities(t *testing.T) {
	t.Parallel()
	needRoot(t)
	m := newContainerMachine(t, withCapabilities(schema.MachineCapabilities()...))
	process := assignment(0).Job.User // of the range
	for i, c := range []struct {
		name string
		of   *schema.Container // nil: a process
		asks *schema.Capabilities
		net  schema.Network
		want func(uid string) string
	}{
		{"process", nil, nil, "", func(uid string) string { return setsOf(uid, "0000000000000000", false) }},
		{"process adds", nil, &schema.Capabilities{Add: []string{"NET_BIND_SERVICE", "IPC_LOCK"}}, "", func(uid string) string { return setsOf(uid, "0000000000004400", true) }},
		{"process cannot be root", nil, &schema.Capabilities{Add: []string{"NET_BIND_SERVICE", "CHOWN", "SYS_ADMIN"}, Drop: []string{"ALL"}}, "", nil},
		{"root", &schema.Container{User: "root"}, nil, "", func(string) string { return setsOf("0", "00000000000005fb", false) }},
		{"root drops", &schema.Container{User: "root"}, &schema.Capabilities{Drop: []string{"CHOWN", "KILL"}}, "", func(string) string { return setsOf("0", "00000000000005da", false) }},
		{"root keeps one", &schema.Container{User: "root"}, &schema.Capabilities{Add: []string{"CHOWN"}, Drop: []string{"ALL"}}, "", func(string) string { return setsOf("0", "0000000000000001", false) }},
		{"root with a network", &schema.Container{User: "root"}, &schema.Capabilities{Add: []string{"NET_RAW"}}, schema.NoNetwork, func(string) string { return setsOf("0", "00000000000025fb", false) }},
		{"user", &schema.Container{User: "ada"}, nil, "", func(string) string { return setsOf("1000", "0000000000000000", false) }},
		{"user adds", &schema.Container{User: "ada"}, &schema.Capabilities{Add: []string{"CHOWN", "NET_BIND_SERVICE"}}, "", func(string) string { return setsOf("1000", "0000000000000401", true) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := shell(i, capabilitySets+"; echo said; exec sleep 1000")
			if a.Job.Task.Capabilities = c.asks; c.net != "" {
				a.Job.Task.Isolation = &schema.Isolation{Network: c.net}
			}
			if c.of != nil {
				c.of.Image, c.of.Command = busyboxImage, a.Job.Task.Process.Command
				a.Job.Task.Process, a.Job.Task.Container = schema.Process{}, c.of
			}
			if c.want == nil {
				_, err := m.Start(t.Context(), place(t, m.dir, a, 1), a)
				if err == nil || !strings.Contains(err.Error(), "the task needs capability.CHOWN, which this machine does not have") {
					t.Errorf("error %v", err)
				}
				return
			}
			p, dir := m.start(a)
			says(t, dir, "said\n")
			u, err := m.host.User(process)
			if err != nil {
				t.Fatal(err)
			}
			want := c.want(fmt.Sprint(u.UID)) + "said\n"
			if got := said(t, dir); got != want {
				t.Errorf("the task has\n%s, want\n%s", got, want)
			}
			beside := newCaller()
			ended := make(chan error, 1)
			go func() {
				ended <- p.Exec(t.Context(), schema.ExecRequest{Command: []string{"sh", "-c", capabilitySets + "; echo said"}}, beside)
			}()
			if got := beside.until(t, "said\n"); got != want {
				t.Errorf("a command beside it has\n%s, want\n%s", got, want)
			}
			beside.end(t)
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCapabilitiesWork: they are good for what they are for.
func TestCapabilitiesWork(t *testing.T) {
	t.Parallel()
	needRoot(t)
	m := newContainerMachine(t, withCapabilities(schema.MachineCapabilities()...))
	const low = "timeout 1 busybox nc -l -p 80 2>&1 | grep -v Terminated; busybox ping -c 1 127.0.0.1 2>&1 | grep -E 'received|denied|permitted' | cut -d, -f2"
	for i, c := range []struct {
		contained bool
		add       []string
		want      string
	}{
		{false, nil, "nc: bind: Permission denied\nping: permission denied (are you root?)\n"},
		{false, []string{"NET_BIND_SERVICE", "NET_RAW"}, " 1 packets received\n"},
		{true, []string{"NET_BIND_SERVICE", "NET_RAW"}, " 1 packets received\n"},
	} {
		a := shell(i, low)
		a.Job.Task.Isolation, a.Job.Task.Capabilities = &schema.Isolation{Network: schema.NoNetwork}, &schema.Capabilities{Add: c.add}
		if c.contained {
			contained(a)
		}
		p, dir := m.start(a)
		wait(t, p)
		if got := said(t, dir); got != c.want {
			t.Errorf("contained %v, with %v: %q, want %q", c.contained, c.add, got, c.want)
		}
	}
}

// TestCapabilitiesRefused: a machine gives what its agent is set up to, whatever the master says.
func TestCapabilitiesRefused(t *testing.T) {
	t.Parallel()
	needRoot(t)
	m := newMachine(t, withCapabilities("NET_BIND_SERVICE", "SYS_ADMIN", "no such"))
	for name, want := range map[string]string{"NET_BIND_SERVICE": "true", "NET_RAW": "", "SYS_ADMIN": "", "no such": ""} {
		if got := m.Attributes()[schema.CapabilityAttribute(name)]; got != want {
			t.Errorf("%s of the machine is %q, want %q", name, got, want)
		}
	}
	a := assignment(0, "true")
	a.Job.Task.Capabilities = &schema.Capabilities{Add: []string{"NET_BIND_SERVICE", "NET_RAW"}}
	if _, err := m.Start(t.Context(), place(t, m.dir, a, 1), a); err == nil || !strings.Contains(err.Error(), "capability.NET_RAW") {
		t.Errorf("error %v", err)
	}
}

// TestCapableEscape: a process with all capabilities that a machine can offer is kept where others are.
func TestCapableEscape(t *testing.T) {
	t.Parallel()
	needRoot(t)
	m := newContainerMachine(t, withCapabilities(schema.MachineCapabilities()...))
	attempts := []string{
		"chroot / /bin/true", "mount -t tmpfs x /tmp", "umount /proc", "unshare -m true", "unshare -U true", "nsenter -t 1 -m true", "mknod /tmp/sda b 8 0",
		"date -s 2001-01-01", "echo 1 >/proc/sys/kernel/sysrq", "echo 1 >/proc/sys/kernel/core_pattern", "hostname other", "nft list ruleset", "kill -0 " + fmt.Sprint(os.Getpid()),
		"cat " + m.dir + "/*.json", "chown 0:0 /tmp", "touch /etc/muster-was-here", "cat /proc/1/environ", "cat /dev/mem", "ulimit -n 1000000",
	}
	var script strings.Builder
	for _, try := range attempts {
		fmt.Fprintf(&script, "( %s ) >/dev/null 2>&1 && echo escaped: '%s'\n", try, try)
	}
	script.WriteString("cat /etc/shadow >/dev/null && echo reads\n")
	a := shell(0, script.String())
	a.Job.Task.Isolation = &schema.Isolation{Network: schema.NoNetwork}
	a.Job.Task.Capabilities = &schema.Capabilities{Add: schema.MachineCapabilities()}
	p, dir := m.start(a)
	wait(t, p)
	if got := said(t, dir); got != "reads\n" {
		t.Errorf("it says %q, want what DAC_READ_SEARCH is for, and nothing else", got)
	}
}
