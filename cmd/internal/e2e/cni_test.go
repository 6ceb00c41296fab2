package e2e_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// debianPlugins is where Debian's package of plugins of CNI has them.
const debianPlugins = "/usr/lib/cni"

// plugged is what the cell's network has beside its range: a service's range, and a list of one plugin with host-local.
const plugged = `, range6: "fd64::/48", services: "10.80.0.0/24", cni: plugins: [{
	type: %q, capabilities: ipRanges: true%s
	ipam: {type: "host-local", dataDir: %q, routes: [{dst: "0.0.0.0/0"}, {dst: "::/0"}]}
}]`

// TestPlugins: plugins of CNI make the networks of tasks on two machines. They are found by name, reached by address and through a service, by
// who may, also while agents are killed, and ends leave nothing. A machine without the plugins gets none.
func TestPlugins(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(filepath.Join(debianPlugins, "bridge")); err != nil {
		t.Skip("needs Debian's containernetworking-plugins")
	}
	c := &barred{ranged: newRanged(t, schema.ModeRoutes)}
	var err error
	c.busybox, err = exec.LookPath("busybox")
	c.must(err)
	leases := c.path("leases")
	cellFile := "cells/" + cellName + "/cell.cue"
	with := func(plugin, more string) []byte {
		return fmt.Appendf(nil, networkOf, schema.ModeRoutes, fmt.Sprintf(plugged, plugin, more, leases))
	}
	c.must(c.agents["m3"].end(syscall.SIGTERM, bound))
	c.flags = []string{"--cni-path", c.path("none")}
	c.startAgent("m3")
	c.flags = nil
	c.until("what m3 lacks is known", func(s *status.Status) string {
		for i := range s.Machines {
			m := &s.Machines[i]
			if has := m.Attributes[schema.HasCNI+"host-local"] == "true"; has != (m.Name != "m3") || m.Health != string(model.HealthUp) {
				return fmt.Sprintf("%s is %s and has host-local: %v", m.Name, m.Health, has)
			}
		}
		return ""
	})
	team := strings.ReplaceAll(fmt.Sprintf(restricted, c.busybox, "friend"), "tasks: 3", "tasks: 4")
	s := c.converge(c.commit("by plugins", map[string][]byte{teamFile: []byte(team), cellFile: with("bridge", `, bridge: "cell0", isGateway: true`)}))
	machines, hosts := map[string]int{}, map[string]string{}
	for _, task := range s.Tasks {
		if at := netip.MustParseAddr(task.Address); at.As4()[3] < 3 || task.Address6 == "" {
			t.Errorf("%s is at %s and %q", task.Name, at, task.Address6)
		}
		if machines[task.Machine]++; strings.HasPrefix(task.Name, "crew/web/") {
			c.servers, hosts[task.Machine] = append(c.servers, task.Address), task.Address
		}
	}
	if len(machines) != 2 || machines["m1"] != 6 || machines["m2"] != 6 {
		t.Fatalf("tasks are on %v", machines)
	}
	// Another list holds for new networks, and one that needs what no machine has is said.
	c.servers = append(c.servers, "web.crew.svc."+cellName+".muster.internal")
	c.admits("at first", "friend", "foe")
	for i, host := range []string{"m1", "m2"} {
		if out, err := c.inside(fmt.Sprint("crew/friend/", i), "/usr/bin/getent", "ahostsv6", fmt.Sprintf("%d.web.crew.%s.muster.internal", i, cellName)); err != nil || !strings.HasPrefix(out, "fd64:") {
			t.Errorf("a name: %q, %v", out, err)
		}
		if out, err := c.fetch(host, hosts[host]); err != nil || !strings.Contains(out, "served") {
			t.Errorf("root on %s: %q, %v", host, out, err)
		}
	}
	for _, name := range []string{"m1", "m2"} {
		c.must(c.agents[name].end(syscall.SIGKILL, bound))
		c.startAgent(name)
	}
	c.admits("after agents were killed", "friend", "foe")
	left := func() string {
		var out []string
		c.must(filepath.WalkDir(leases, func(path string, _ os.DirEntry, err error) error {
			if _, ipErr := netip.ParseAddr(filepath.Base(path)); ipErr == nil {
				out = append(out, path)
			}
			return err
		}))
		for _, name := range []string{"m1", "m2"} {
			files, err := os.ReadDir(c.path("state-"+name, "cni"))
			c.must(err)
			for _, f := range files {
				out = append(out, f.Name())
			}
			line := c.net.on(c.hosts[name], "ip", "-o", "link", "show", "type", "veth")
			links, err := exec.Command(line[0], line[1:]...).CombinedOutput()
			c.must(err)
			for link := range strings.Lines(string(links)) {
				if strings.Contains(link, "master cell0") {
					out = append(out, link)
				}
			}
		}
		return strings.Join(out, "\n")
	}
	if n := strings.Count(left(), leases); n != 24 {
		t.Errorf("there are %d leases for 12 tasks with two addresses each", n)
	}
	commit := c.commit("by what nobody has", map[string][]byte{cellFile: with("ghost", ""), teamFile: []byte(strings.ReplaceAll(team, "1000000", "1000001"))})
	c.until("nothing starts, and it is said why", func(*status.Status) string {
		out, _ := c.command("why", "--master", c.url, "-o", "wide", "crew/friend").CombinedOutput() // fails for what is pending
		if strings.Contains(string(out), "network.cni.ghost") {
			return ""
		}
		return fmt.Sprintf("%s: %s", commit, out)
	})
	c.converge(c.commit("no tasks\n\nMuster-Allow-Prune: 100", map[string][]byte{teamFile: nil, cellFile: with("ptp", "")}))
	c.must(within(bound, func() error {
		if left := left(); left != "" {
			return fmt.Errorf("left behind: %s", left)
		}
		return nil
	}))
}
