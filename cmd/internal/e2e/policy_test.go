package e2e_test

import (
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// restricted is a web server on each of three machines, to which only those with a label may connect, and
// two jobs on the same machines. All are behind services.
const restricted = `package crew

import "` + module + `/muster"

job: [string]: muster.#Job & {
	user: "crew", cell: "` + cellName + `", tasks: 3, spread: by: "hostname"
	task: {isolation: network: "own", graceSeconds: 1}
	task: resources: {cpuMilli: 5, ramBytes: 16Mi, diskBytes: 8Mi}
}
job: web: {
	policy: from: [{selector: "role=%[2]s"}]
	task: {
		process: command: ["/bin/sh", "-c", "mkdir -p www && echo served >www/index.html && exec %[1]s httpd -f -p 80 -h www"]
		resources: {ports: ["http", "admin"], portNumbers: {http: 80, admin: 81}}
		health: {http: {port: "http", path: "/"}, intervalSeconds: 1, timeoutSeconds: 10}
	}
}
job: [=~"^(friend|foe)$"]: {
	task: process: command: ["%[1]s", "sleep", "1000000"]
}
job: friend: labels: role: "friend"
job: foe: labels: role: "foe"
service: web: muster.#Service & {user: "crew", cell: "` + cellName + `", selector: "muster/job=web", ports: http: {port: 80}}
`

// barred is a cell in which not everyone may connect to each task.
type barred struct {
	*ranged
	busybox string
	servers []string // addresses, and last that of the service
}

// asks returns how often a task of a job has been served, and how often refused, by the servers.
func (c *barred) asks(job string, index int) (served, refused int, said string) {
	script := fmt.Sprintf("for a in %s; do timeout 10 %s wget -q -O- http://$a/ 2>&1; done", strings.Join(c.servers, " "), c.busybox)
	out, err := c.inside(fmt.Sprintf("crew/%s/%d", job, index), "/bin/sh", "-c", script)
	if err != nil { // that of the last one
		out = err.Error()
	}
	return strings.Count(out, "served"), strings.Count(out, "Connection refused"), out
}

// admits waits until all tasks of one job are served by all servers, and those of another by none.
func (c *barred) admits(when, friend, foe string) {
	c.t.Helper()
	for i := range 3 {
		c.must(within(bound, func() error {
			if n, _, said := c.asks(friend, i); n != len(c.servers) {
				return fmt.Errorf("%s: %s/%d is served %d times by %d servers: %s", when, friend, i, n, len(c.servers), said)
			}
			return nil
		}))
		c.must(within(bound, func() error {
			if n, refused, said := c.asks(foe, i); n > 0 || refused != len(c.servers) {
				return fmt.Errorf("%s: %s/%d is served %d times, and refused %d times by %d servers: %s", when, foe, i, n, refused, len(c.servers), said)
			}
			return nil
		}))
	}
}

// fetch asks a server from the network of a machine, by a command that runs another.
func (c *barred) fetch(machine, address string, by ...string) (string, error) {
	line := c.net.on(c.hosts[machine], append(by, "timeout", "10", c.busybox, "wget", "-q", "-O-", "http://"+address+"/")...)
	out, err := exec.Command(line[0], line[1:]...).CombinedOutput()
	return string(out), err
}

// TestPolicy: who may connect by a job's policy is served, by address and by service, from the same machine
// and from others, and who may not is refused: after another policy, while agents are killed, and after that.
func TestPolicy(t *testing.T) {
	t.Parallel()
	c := &barred{ranged: newRanged(t, schema.ModeRoutes)}
	var err error
	c.busybox, err = exec.LookPath("busybox")
	c.must(err)
	cellFile := "cells/" + cellName + "/cell.cue"
	with := func(more string) []byte {
		return fmt.Appendf(nil, networkOf, schema.ModeRoutes, `, services: "10.65.0.0/24"`+more)
	}
	s := c.converge(c.commit("restricted", map[string][]byte{teamFile: fmt.Appendf(nil, restricted, c.busybox, "friend"), cellFile: with("")}))
	machines := map[string]string{}
	for _, task := range s.Tasks {
		if strings.HasPrefix(task.Name, "crew/web/") {
			c.servers, machines[task.Machine] = append(c.servers, task.Address), task.Address
		}
	}
	if len(machines) != 3 {
		t.Fatalf("the servers are on %v", machines)
	}
	c.servers = append(c.servers, "web.crew.svc."+cellName+".muster.internal")
	c.admits("at first", "friend", "foe")

	// Of the machine itself only root is let through, as the agent is with its checks.
	for name, address := range machines {
		if out, err := c.fetch(name, address); err != nil || !strings.Contains(out, "served") {
			t.Errorf("root on %s: %q, %v", name, out, err)
		}
		if out, err := c.fetch(name, address, "setpriv", "--reuid", "65534", "--clear-groups"); err == nil || !strings.Contains(out, "refused") {
			t.Errorf("another user on %s: %q, %v", name, out, err)
		}
	}
	for _, x := range []struct{ job, line string }{{"web", "who may connect: tasks of the same user of jobs with role=friend"}, {"foe", "cannot connect to these, whose policy refuses it: crew/web"}} {
		out, err := c.command("why", "--master", c.url, "-o", "wide", "crew/"+x.job).CombinedOutput()
		if err != nil || !strings.Contains(string(out), x.line) {
			t.Errorf("muster why crew/%s: %v\n%s", x.job, err, out)
		}
	}
	names := slices.Sorted(maps.Keys(c.agents))
	for _, name := range names {
		c.must(c.agents[name].end(syscall.SIGKILL, bound))
	}
	for name, address := range machines { // no exec without agents
		if out, err := c.fetch(name, address, "setpriv", "--reuid", "65534", "--clear-groups"); err == nil || !strings.Contains(out, "refused") {
			t.Errorf("while the agent of %s is dead: %q, %v", name, out, err)
		}
	}
	for _, name := range names {
		c.startAgent(name)
	}
	c.until("the machines are back", func(s *status.Status) string {
		for i := range s.Machines {
			if s.Machines[i].Health != string(model.HealthUp) {
				return s.Machines[i].Name
			}
		}
		return ""
	})
	c.admits("after other agents have begun", "friend", "foe")
	c.converge(c.commit("the other way round", map[string][]byte{teamFile: fmt.Appendf(nil, restricted, c.busybox, "foe")}))
	c.admits("after another policy", "foe", "friend")
	const foes = `policy: from: [{selector: "role=foe"}]`
	declared := strings.Replace(fmt.Sprintf(restricted, c.busybox, "foe"), foes, `policy: from: [{selector: "role=friend", ports: ["http"]}, {selector: "role=foe", ports: ["admin"]}]`, 1)
	c.converge(c.commit("by ports", map[string][]byte{teamFile: []byte(declared)}))
	c.admits("by ports", "friend", "foe")
	declared = strings.Replace(fmt.Sprintf(restricted, c.busybox, "foe"), foes, "", 1)
	c.converge(c.commit("closed", map[string][]byte{teamFile: []byte(declared), cellFile: with(`, policy: "closed"`)}))
	c.must(within(bound, func() error {
		for _, job := range []string{"friend", "foe"} {
			if n, refused, said := c.asks(job, 0); n > 0 || refused != len(c.servers) {
				return fmt.Errorf("%s is served %d times in a closed cell, and refused %d times: %s", job, n, refused, said)
			}
		}
		return nil
	}))
	for _, task := range c.until("", func(*status.Status) string { return "" }).Tasks {
		if task.Restarts > 0 || task.Generation == 0 || task.Health == schema.Unhealthy {
			t.Errorf("%s was restarted %d times, and is %s", task.Name, task.Restarts, task.Health)
		}
	}
	c.converge(c.commit("no tasks\n\nMuster-Allow-Prune: 100", map[string][]byte{teamFile: nil}))
}
