package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// ranged is a cell whose machines, each in a network namespace, give tasks networks of their own.
type ranged struct {
	*cell
	net    *network
	agents map[string]*daemon
	hosts  map[string]int // by machine
	flags  []string       // of agents
}

// networkOf declares the cell's network.
const networkOf = `package cells

import "` + module + `/muster"

cell: "` + cellName + `": muster.#Cell & {quota: "off", network: {range: "10.64.0.0/16", mode: %q%s}}
`

// bothFamilies is what the cell's network has beside that, and bothService what is reached there.
const (
	bothFamilies = `, range6: "fd64::/48", services: "10.80.0.0/24", services6: "fd80::/112"`
	bothService  = `
service: front: muster.#Service & {user: "crew", cell: "` + cellName + `", selector: "muster/job=web", ports: http: port: 80}
`
)

// apart is jobs whose tasks have networks of their own and one port number: a web server,
// and clients that connect to its tasks again and again, and write down how that went.
const apart = `package crew

import "` + module + `/muster"

job: web: muster.#Job & {
	user: "crew", cell: "` + cellName + `", tasks: 6
	task: {
		process: command: ["/bin/sh", "-c", "mkdir -p www && echo $MUSTER_ADDRESS >www/index.html && exec %[1]s httpd -f -p 80 -h www"]
		isolation: network: "own"
		resources: {cpuMilli: 5, ramBytes: 16Mi, diskBytes: 8Mi, ports: ["http"], portNumbers: http: 80}
		health: {http: {port: "http", path: "/"}, intervalSeconds: 1, timeoutSeconds: 10}
		graceSeconds: 1
	}
}
job: client: muster.#Job & {
	user: "crew", cell: "` + cellName + `", tasks: 3
	spread: by: "hostname"
	task: {
		process: command: ["/bin/sh", "-c", """
			while :; do
				for a in $(cat %[2]s/addresses); do
					got=$(timeout 30 %[1]s wget -q -O- http://$a/ 2>&1); [ "$got" = $a ] && echo ok >>%[2]s/client-$MUSTER_TASK_INDEX || echo $a: $got: failed >>%[2]s/client-$MUSTER_TASK_INDEX
				done
				sleep 0.1
			done
			"""]
		isolation: network: "own"
		resources: {cpuMilli: 5, ramBytes: 16Mi, diskBytes: 8Mi}
		graceSeconds: 1
	}
}
`

// TestOwnNetwork: tasks on three machines have networks of their own, and reach each other by
// address and by name, also while each agent is killed; in one cell they have two addresses. Ends leave nothing.
func TestOwnNetwork(t *testing.T) {
	t.Parallel()
	for _, mode := range []schema.NetworkMode{schema.ModeRoutes, schema.ModeVXLAN} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			ownNetwork(newRanged(t, mode), mode == schema.ModeVXLAN)
		})
	}
}

func newRanged(t *testing.T, mode schema.NetworkMode) *ranged {
	t.Helper()
	c := &ranged{cell: prepare(t), agents: map[string]*daemon{}, hosts: map[string]int{}}
	c.net = newNetwork(t)
	t.Cleanup(c.stop)
	c.initRepo()
	families, subnets := "", 1
	if mode == schema.ModeVXLAN { // the machines themselves have no address of IPv6
		families, subnets = bothFamilies, 2
	}
	c.commit("the network", map[string][]byte{"cells/" + cellName + "/cell.cue": fmt.Appendf(nil, networkOf, mode, families)})
	c.startMaster()
	for i := range 3 {
		name := fmt.Sprint("m", i+1)
		c.hosts[name] = c.net.attach()
		c.startAgent(name)
	}
	c.until("the machines have subnets", func(s *status.Status) string {
		n := 0
		for i := range s.Machines {
			m := &s.Machines[i]
			if m.Health == string(model.HealthUp) && m.Attributes[schema.HasOwnNetwork] != "true" {
				t.Skipf("NOT TESTED: needs networks of tasks: %v", m.Notes)
			}
			if m.Health == string(model.HealthUp) && len(m.Subnets) == subnets {
				n++
			}
		}
		return map[bool]string{false: fmt.Sprintf("%d machines", n)}[n == 3]
	})
	return c
}

func (c *ranged) startAgent(name string) {
	c.t.Helper()
	line := c.net.on(c.hosts[name], filepath.Join(c.bin, "muster-agent"), "--cell", cellName, "--master", "unix:"+c.path("link", "agent.sock"),
		"--name", name, "--address", address0(c.hosts[name]), "--state-dir", c.path("state-"+name), "--writable", c.path("journals"), "--insecure-registry", hubRegistry)
	a, err := launch(c.path(name+".log"), line[0], append(line[1:], c.flags...)...)
	c.must(err)
	c.agents[name] = a
}

// stop ends the agents with their tasks, after which nothing is left of these on any machine.
func (c *ranged) stop() {
	for name, a := range c.agents {
		c.check(a.end(syscall.SIGINT, bound))
		if log, err := os.ReadFile(c.path(name + ".log")); c.t.Failed() {
			c.t.Logf("the end of the log of %s: %v\n%s", name, err, log[max(0, len(log)-6000):])
		}
		if left := c.leftOn(name); left != "" {
			c.t.Errorf("left behind on %s: %s", name, left)
		}
	}
}

// ownLink is a line of a link that muster has made: the bridge, the VXLAN, or a machine's end of a task's link. A kernel
// puts others into a new namespace, such as sit0 and tunl0.
var ownLink = regexp.MustCompile(`^\d+: (mu[bx]-[a-z2-7]{5}|m[a-z2-7]{14})[@:]`)

// leftOn returns what there is on a machine of networks of tasks.
func (c *ranged) leftOn(name string) string {
	var left []string
	for _, x := range []struct {
		args []string
		own  func(line string) bool
	}{
		{[]string{"ip", "-o", "link"}, ownLink.MatchString},
		{[]string{"ip", "route", "show", "proto", "109"}, func(string) bool { return true }},
		{[]string{"nft", "list", "tables"}, regexp.MustCompile(`-(tasks|policy)\s*$`).MatchString},
	} {
		line := c.net.on(c.hosts[name], x.args...)
		out, err := exec.Command(line[0], line[1:]...).CombinedOutput()
		c.check(err)
		for text := range strings.Lines(string(out)) {
			if x.own(text) {
				left = append(left, text)
			}
		}
	}
	held, err := os.ReadDir(c.path("state-"+name, "networks"))
	c.check(err)
	for _, f := range held {
		left = append(left, f.Name())
	}
	return strings.Join(left, "; ")
}

// inside runs a command beside a task and returns what it prints.
func (c *ranged) inside(task string, command ...string) (string, error) {
	out, err := c.command(append([]string{"exec", "--master", c.url, task, "--"}, command...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %v: %w\n%s", task, command, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

func ownNetwork(c *ranged, both bool) {
	t := c.t
	busybox, err := exec.LookPath("busybox")
	c.must(err)
	c.must(os.WriteFile(c.path("journals", "addresses"), nil, 0o644))
	team := fmt.Sprintf(apart, busybox, c.path("journals"))
	if both {
		team += bothService
	}
	s := c.converge(c.commit("tasks", map[string][]byte{teamFile: []byte(team)}))
	of, machines := map[netip.Addr]string{}, map[string]bool{}
	var all []string
	for _, task := range s.Tasks {
		at, err := netip.ParseAddr(task.Address)
		c.must(err)
		if of[at] != "" || !netip.MustParsePrefix("10.64.0.0/16").Contains(at) {
			t.Fatalf("%s is at %s, and so is %q", task.Name, at, of[at])
		}
		of[at] = task.Name
		if strings.HasPrefix(task.Name, "crew/web/") {
			machines[task.Machine] = true
			all = append(all, task.Address)
		}
	}
	if len(machines) < 3 {
		t.Fatalf("the tasks are on %v alone", machines)
	}
	list := c.path("journals", "addresses")
	c.must(os.WriteFile(list+".new", []byte(strings.Join(all, "\n")), 0o644))
	c.must(os.Rename(list+".new", list))

	conf, err := c.inside("crew/client/0", "/bin/cat", "/etc/resolv.conf")
	c.must(err)
	if !strings.HasPrefix(conf, "nameserver 10.64.") || !strings.HasSuffix(conf, "options ndots:0") {
		t.Errorf("its resolv.conf: %q", conf)
	}
	for i := range 6 {
		name := fmt.Sprintf("%d.web.crew.%s.muster.internal", i, cellName)
		c.must(within(bound, func() error {
			out, err := c.inside(fmt.Sprint("crew/client/", i%3), "/usr/bin/getent", "ahostsv4", name)
			if err != nil {
				return err
			}
			if at, err := netip.ParseAddr(strings.Fields(out)[0]); err != nil || of[at] != fmt.Sprint("crew/web/", i) {
				return fmt.Errorf("%s is said to be at %q (%w)", name, out, err)
			}
			return nil
		}))
	}
	c.goesOn("at first", all)
	if both {
		c.bothReached(s, busybox)
	}
	for name := range c.agents {
		links := 0
		there := c.leftOn(name)
		for line := range strings.SplitSeq(there, "; ") {
			if ownLink.MatchString(line) {
				links++
			}
		}
		if links < 3 { // the bridge, and of a client and a server
			t.Errorf("of what is on %s this sees %q", name, there)
		}
	}
	for _, name := range []string{"m1", "m2", "m3"} {
		c.must(c.agents[name].end(syscall.SIGKILL, bound))
		c.goesOn("while the agent of "+name+" is dead", all)
		c.startAgent(name)
		c.goesOn("after it has begun again", all)
	}
	c.until("the machines are back", func(s *status.Status) string {
		for i := range s.Machines {
			if s.Machines[i].Health != string(model.HealthUp) {
				return s.Machines[i].Name
			}
		}
		return ""
	})
	for _, task := range c.until("", func(*status.Status) string { return "" }).Tasks {
		if of[netip.MustParseAddr(task.Address)] != task.Name || task.Restarts > 0 {
			t.Errorf("%s is at %s, restarted %d times", task.Name, task.Address, task.Restarts)
		}
	}
	c.keeperKilled("crew/web/0", func(address string) error {
		_, err := c.inside("crew/client/1", busybox, "wget", "-q", "-O-", "http://"+address+"/")
		return err
	})
	s = c.converge(c.commit("no tasks\n\nMuster-Allow-Prune: 100", map[string][]byte{teamFile: nil}))
	if len(s.Tasks) > 0 {
		t.Errorf("%d tasks are left", len(s.Tasks))
	}
}

// keeperKilled kills the keeper of a task with SIGKILL: its agent says so and starts the task again, with the
// network that it had, in which it is reached, and makes nothing more.
func (c *ranged) keeperKilled(name string, reach func(address string) error) {
	c.t.Helper()
	of := func(s *status.Status) status.TaskStatus {
		for _, task := range s.Tasks {
			if task.Name == name {
				return task
			}
		}
		return status.TaskStatus{}
	}
	task := of(c.until("", func(*status.Status) string { return "" }))
	there := c.leftOn(task.Machine)
	files, err := filepath.Glob(c.path("state-"+task.Machine, "tasks", cellName, name, "*", "*", "state.json"))
	c.must(err)
	for _, file := range files {
		b, err := os.ReadFile(file)
		c.must(err)
		var state struct{ Keeper, Task struct{ PID int } }
		c.must(json.Unmarshal(b, &state))
		if state.Task.PID == task.PID {
			c.must(syscall.Kill(state.Keeper.PID, syscall.SIGKILL))
		}
	}
	s := c.until(name+" runs again", func(s *status.Status) string {
		now := of(s)
		if now.State == "running" && now.PID != task.PID {
			return ""
		}
		return fmt.Sprintf("it is %s as process %d", now.State, now.PID)
	})
	now := of(s)
	if now.Address != task.Address || now.Restarts != 1 || len(now.History) != 1 || !strings.Contains(now.History[0], "its keeper was killed") {
		c.t.Errorf("with its keeper killed %s is at %s, was at %s, has %d restarts, and its history is %q", name, now.Address, task.Address, now.Restarts, now.History)
	}
	c.must(within(bound, func() error { return reach(task.Address) }))
	if is := c.leftOn(task.Machine); is != there {
		c.t.Errorf("on %s there is %s\nbefore it was %s", task.Machine, is, there)
	}
}

// bothReached fails unless the servers, and the service over them, are found and reached at addresses of IPv6, too.
func (c *ranged) bothReached(s *status.Status, busybox string) {
	c.t.Helper()
	read := func(at netip.Addr) (string, error) {
		return c.inside("crew/client/0", busybox, "wget", "-q", "-O-", "http://"+netip.AddrPortFrom(at, 80).String()+"/")
	}
	servers := map[string]bool{}
	for _, task := range s.Tasks {
		job, index := model.JobOf(task.Name), task.Name[strings.LastIndexByte(task.Name, '/')+1:]
		at, err := netip.ParseAddr(task.Address6)
		c.must(err)
		if job != "crew/web" {
			continue
		}
		servers[task.Address] = true
		out, err := c.inside("crew/client/1", "/usr/bin/getent", "ahostsv6", index+".web.crew."+cellName+".muster.internal")
		if c.must(err); !strings.HasPrefix(out, task.Address6+" ") {
			c.t.Errorf("%s is said to be at %q, want %s", task.Name, out, at)
		}
		if who, err := read(at); err != nil || who != task.Address {
			c.t.Errorf("%s at %s: %q, %v", task.Name, at, who, err)
		}
	}
	out, err := c.command("services", "crew/front", "-o", "json", "--master", c.url).Output()
	c.must(err)
	var front []status.Serving
	c.must(json.Unmarshal(out, &front))
	if len(front) != 1 || len(front[0].Addresses) != 2 {
		c.t.Fatalf("the service: %s", out)
	}
	for _, at := range front[0].Addresses {
		c.must(within(bound, func() error { // the first connection may come before the kernel knows of it
			if who, err := read(at); err != nil || !servers[who] {
				return fmt.Errorf("the service at %s: %q, %w", at, who, err)
			}
			return nil
		}))
	}
}

// goesOn waits until each client has reached as many tasks more as there are, and fails if one
// did not once.
func (c *ranged) goesOn(when string, addresses []string) {
	c.t.Helper()
	for i := range 3 {
		journal := c.path("journals", fmt.Sprint("client-", i))
		read := func() (ok, failed int) {
			b, _ := os.ReadFile(journal) // not there before the first
			return strings.Count(string(b), "ok\n"), strings.Count(string(b), "failed\n")
		}
		begin, _ := read()
		c.must(within(bound, func() error {
			if ok, _ := read(); ok < begin+len(addresses) {
				b, _ := os.ReadFile(journal)
				return fmt.Errorf("%s: client %d has reached %d tasks: want %d: %s", when, i, ok, begin+len(addresses), b[max(0, len(b)-500):])
			}
			return nil
		}))
		if _, failed := read(); failed > 0 {
			b, _ := os.ReadFile(journal)
			c.t.Fatalf("%s: client %d has failed %d times:\n%s", when, i, failed, b[max(0, len(b)-500):])
		}
	}
}

// pod is an alloc set, and jobs of which two tasks share the network of each alloc: a web server, and
// what fetches from it at 127.0.0.1, again and again, and answers by itself, at a port that it is given.
const pod = `package crew

import "` + module + `/muster"

allocset: pod: muster.#AllocSet & {
	user: "crew", cell: "` + cellName + `", allocs: 2, resources: {cpuMilli: 20, ramBytes: 64Mi, diskBytes: 32Mi}
	spread: by: "hostname"
}
job: [string]: muster.#Job & {
	user: "crew", cell: "` + cellName + `", tasks: 2, allocset: "pod", update: maxParallel: 2
	task: {isolation: network: "own", graceSeconds: 1}
	task: resources: {cpuMilli: 5, ramBytes: 16Mi, diskBytes: 8Mi}
}
job: web: task: {
	process: command: ["/bin/sh", "-c", "mkdir -p www && echo $MUSTER_ADDRESS >www/index.html && exec %[1]s httpd -f -p 80 -h www"]
	resources: {ports: ["http"], portNumbers: http: 80}
	health: {http: {port: "http", path: "/"}, intervalSeconds: 1, timeoutSeconds: 10}
}
job: aside: task: {
	process: command: ["/bin/sh", "-c", """
		mkdir -p www && echo aside >www/index.html && %[1]s httpd -p $MUSTER_PORT_METRICS -h www
		while :; do
			got=$(timeout 30 %[1]s wget -q -O- http://127.0.0.1/ 2>&1)
			[ "$got" = $MUSTER_ADDRESS ] && echo ok >>%[2]s/aside-$MUSTER_TASK_INDEX || echo "127.0.0.1: $got: missed" >>%[2]s/aside-$MUSTER_TASK_INDEX
			sleep 0.1
		done
		"""]
	resources: ports: ["metrics"]
	health: {http: {port: "metrics", path: "/"}, intervalSeconds: 1, timeoutSeconds: 10}
}
job: probe: {
	task: process: command: ["%[1]s", "sleep", "1000000"]
	task: resources: ports: ["idle"]
}
`

// TestAllocNetwork: the tasks of an alloc share a network, which stays while they start anew and while
// the agent is killed. Its end leaves nothing.
func TestAllocNetwork(t *testing.T) {
	t.Parallel()
	c := newRanged(t, schema.ModeRoutes)
	busybox, err := exec.LookPath("busybox")
	c.must(err)
	declared := fmt.Sprintf(pod, busybox, c.path("journals"))
	s := c.converge(c.commit("tasks", map[string][]byte{teamFile: []byte(declared)}))
	at, numbers := map[string]string{}, map[string]map[int]bool{}
	for _, task := range s.Tasks {
		if strings.HasPrefix(task.Name, "crew/pod/") {
			continue
		}
		at[task.Name] = task.Address
		for _, p := range task.Ports {
			if numbers[task.Address] == nil {
				numbers[task.Address] = map[int]bool{}
			}
			numbers[task.Address][p.Port] = true
		}
	}
	if len(numbers) != 2 || len(at) != 6 {
		t.Fatalf("%d tasks are at %v, want 6 at two addresses", len(at), numbers)
	}
	for address, of := range numbers {
		if !netip.MustParsePrefix("10.64.0.0/16").Contains(netip.MustParseAddr(address)) || len(of) != 3 {
			t.Errorf("at %s are ports %v, want those of three tasks", address, of)
		}
	}
	fetched := func(when string) {
		t.Helper()
		for i := range 2 {
			journal := c.path("journals", fmt.Sprint("aside-", i))
			count := func() int { b, _ := os.ReadFile(journal); return strings.Count(string(b), "ok\n") }
			begin := count()
			c.must(within(bound, func() error {
				if count() <= begin {
					b, _ := os.ReadFile(journal)
					return fmt.Errorf("%s: aside/%d fetches nothing from 127.0.0.1: %s", when, i, b[max(0, len(b)-500):])
				}
				return nil
			}))
		}
	}
	same := func(when string) {
		t.Helper()
		c.until(when, func(s *status.Status) string {
			for _, task := range s.Tasks {
				if want := at[task.Name]; want != "" && (task.Address != want || task.State != status.TaskRunning) {
					return fmt.Sprintf("%s is %s at %q, want %s", task.Name, task.State, task.Address, want)
				}
			}
			return ""
		})
		fetched(when)
	}
	fetched("at first")
	c.must(within(bound, func() error {
		for _, job := range []string{"web", "aside"} {
			out, err := c.inside("crew/probe/0", "/usr/bin/getent", "hosts", fmt.Sprintf("1.%s.crew.%s.muster.internal", job, cellName))
			if err != nil {
				return err
			}
			if got := strings.Fields(out)[0]; got != at["crew/"+job+"/1"] {
				return fmt.Errorf("crew/%s/1 is said to be at %s, want %s", job, got, at["crew/"+job+"/1"])
			}
		}
		return nil
	}))
	for name := range c.agents {
		c.must(c.agents[name].end(syscall.SIGKILL, bound))
		fetched("while the agent of " + name + " is dead")
		c.startAgent(name)
	}
	same("after other agents have begun")
	c.converge(c.commit("other versions", map[string][]byte{teamFile: []byte(strings.ReplaceAll(declared, "graceSeconds: 1}", `graceSeconds: 1, env: VERSION: "2"}`))}))
	same("after all tasks have begun anew")
	s = c.converge(c.commit("no tasks\n\nMuster-Allow-Prune: 100", map[string][]byte{teamFile: nil}))
	if len(s.Tasks) > 0 {
		t.Errorf("%d tasks are left", len(s.Tasks))
	}
	for name := range c.agents {
		c.must(within(bound, func() error {
			for line := range strings.SplitSeq(c.leftOn(name), "; ") {
				if ownLink.MatchString(line) && !strings.Contains(line, "mub-") {
					return fmt.Errorf("on %s there is still %s", name, line)
				}
			}
			return nil
		}))
	}
}
