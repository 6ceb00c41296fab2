package e2e_test

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema/turns"
)

var (
	serviceRounds = flag.Int("services.rounds", 1, "how often TestService does all that it does")
	serviceOnly   = flag.String("services.only", ".", "what TestService does: scenarios whose names this regular expression matches")
	serviceWhole  = flag.Bool("services.whole", false, "TestService also does what waits for minutes")
	serviceSeed   = flag.Uint64("services.seed", 1, "decides at which moments TestService kills, and whom")
	updates       = flag.Int("services.updates", 1, "rolling updates of TestService in a round")
	updateTasks   = flag.Int("services.tasks", 3, "tasks of the job in these rolling updates")
	requests      = flag.Int("services.requests", 0, "requests that TestService has sent at least when it has done its rolling updates: it updates until then")
	clients       = flag.Int("services.clients", 1, "who sends requests in TestService, on each of two machines")
	serviceKills  = flag.Int("services.kills", 2, "how often TestService kills an agent in a round, and how often the master")
)

// execOutput runs a command, and returns what it prints.
func execOutput(line []string) (string, error) {
	out, err := exec.Command(line[0], line[1:]...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(line, " "), err, out)
	}
	return string(out), err
}

// answering is a job whose tasks answer others.
type answering struct {
	name, version, more string
	tasks               int
	sick                string // the tasks are not healthy while this file is there
}

func (g *grid) job(a answering) string {
	return fmt.Sprintf(`
job: %q: muster.#Job & {
	user: "crew", cell: %q, tasks: %d
	labels: tier: %[1]q
	task: {
		process: command: [%[4]q, %[5]q]
		resources: {cpuMilli: 100, ramBytes: 128Mi, diskBytes: 1Mi, ports: ["http"]}
		env: {VERSION: %[6]q, SICK: %[8]q}
		graceSeconds: 10
		health: http: {port: "http", path: "/health"}
	}
	update: {maxParallel: 1}
	%[7]s
}
`, a.name, g.name, a.tasks, g.path("server"), answerWord, a.version, a.more, cmp.Or(a.sick, "/nowhere"))
}

// service is one of the crew's over the jobs of a tier.
func (g *grid) service(name, tier, ports string) string {
	return fmt.Sprintf("\nservice: %q: muster.#Service & {user: \"crew\", cell: %q, selector: \"tier=%s\", ports: {%s}}\n", name, g.name, tier, ports)
}

// known is what a service of the crew is called in DNS.
func (g *grid) known(service string) string {
	return service + ".crew.svc." + g.name + ".muster.internal"
}

// declare commits what the crew wants.
func (g *grid) declare(message string, parts ...string) string {
	g.t.Helper()
	return g.commit(message, map[string][]byte{teamFile: fmt.Appendf(nil, "package crew\n\nimport \"%s/muster\"\n%s", module, strings.Join(parts, ""))})
}

// load is a cell whose services are asked all the time while things happen to it.
type load struct {
	*sending
	random     *rand.Rand
	web        answering // behind the service front
	next, stay answering // behind front at times, and one that nothing happens to
	tier       string    // of front
	spare      string    // the ports of front beside 80
	side       string    // another service over web, by its name
	large      bool      // what takes the place of others is wanted
}

// newLoad returns a cell of three machines, of which two send requests.
func newLoad(t *testing.T) *load {
	t.Helper()
	l := &load{
		web:    answering{name: "web", version: "0", tasks: 3},
		next:   answering{name: "next", version: "0", tasks: 1},
		stay:   answering{name: "stay", version: "0", tasks: 1, more: `priority: "production", constraints: [{attribute: "is", value: "m3"}]`},
		tier:   "web",
		spare:  "spare: {port: 8080, target: \"http\"}",
		side:   "side",
		random: rand.New(rand.NewPCG(*serviceSeed, 17)),
	}
	g := newGrid(t, 3, "--cpu-milli", "1200")
	l.sending = g.sendAll()
	t.Cleanup(l.stop)
	g.converge(l.commit("services"))
	for range *clients {
		l.shop("m1", g.known("front"), 80)
		l.shop("m3", g.known("front"), 80)
	}
	for _, machine := range []string{"m1", "m2"} {
		l.hold(machine, "stay", g.virtual("stay"))
	}
	// Where nothing is sent from the name may come later, and the master be killed before.
	l.from("m2", "the service is known", g.known("front"), 80, func(_ string, err error) bool { return err == nil })
	l.must(within(bound, func() error { return l.onDisk("m2", "front") })) // in a moment: an agent that is killed before has nothing
	return l
}

// onDisk returns an error as long as a machine's disk has no service of a name.
func (l *load) onDisk(machine, service string) error {
	files, err := filepath.Glob(l.path("state-"+machine, "directory", "*.json"))
	for _, name := range files {
		if b, _ := os.ReadFile(name); bytes.Contains(b, []byte(strconv.Quote(service))) {
			return nil
		}
	}
	return errors.Join(err, fmt.Errorf("none of %d files of %s has the service %s", len(files), machine, service))
}

// commit commits what is wanted now.
func (l *load) commit(message string) string {
	l.t.Helper()
	web := l.web
	web.more += "\ndisruption: maxDown: 1"
	parts := []string{l.job(web), l.job(l.next), l.job(l.stay), l.service("front", l.tier, "http: port: 80, "+l.spare), l.service(l.side, "web", "http: port: 80"), l.service("stay", "stay", "http: port: 80")}
	if l.large {
		parts = append(parts, large(l.name))
	}
	return l.declare(message, parts...)
}

// becomes commits what is wanted now, and waits until it is so.
func (l *load) becomes(message string) *status.Status {
	l.t.Helper()
	return l.converge(l.commit(message))
}

// update commits another version of web.
func (l *load) update() string {
	l.t.Helper()
	l.web.version = fmt.Sprint(l.random.Uint64())
	return l.commit("an update")
}

// large is a job that has to take the place of others on two of three machines.
func large(cell string) string {
	return fmt.Sprintf(`
job: large: muster.#Job & {
	user: "crew", cell: %q, tasks: 2, priority: "production"
	task: {
		process: command: ["/bin/sleep", "1000000"]
		resources: {cpuMilli: 1150, ramBytes: 16Mi, diskBytes: 1Mi}
		graceSeconds: 1
	}
}
`, cell)
}

// scenario is what happens while requests are sent, after which all is as it was.
type scenario struct {
	name string
	long bool // it waits for minutes
	do   func(*load)
}

// scenarios, of which no request to a service may fail, and no open connection to a task that goes on.
var scenarios = []scenario{
	{name: "rolling updates", do: (*load).updates},
	{name: "agents killed while they program", do: (*load).agentsKilled},
	{name: "the master killed in updates", do: (*load).masterKilled},
	{name: "a drain", do: (*load).drain},
	{name: "a preemption", do: (*load).preempt},
	{name: "fewer tasks, and more", do: (*load).scale},
	{name: "other machines", do: (*load).move},
	{name: "a move for the spread", long: true, do: (*load).rebalance},
	{name: "a service renamed", do: (*load).rename},
	{name: "another selector", do: (*load).reselect},
	{name: "another port", do: (*load).renumber},
}

// TestService: clients on two machines find a service by name and send it requests while its tasks, machines, agents
// and master, and it itself, have to endure each of the scenarios: none fails. `make services` is the long one.
// The scenarios take turns in CI.
func TestService(t *testing.T) {
	t.Parallel()
	only, err := regexp.Compile(*serviceOnly)
	if err != nil {
		t.Fatal(err)
	}
	l := newLoad(t)
	for range *serviceRounds {
		for i, s := range scenarios {
			if turns.Takes(i) && only.MatchString(s.name) && (!s.long || *serviceWhole) {
				l.account(s.name, func() { s.do(l) })
				l.whole()
			}
		}
	}
	l.stop()
}

func (l *load) updates() {
	l.web.tasks = *updateTasks
	done := 0
	for ; done < *updates || l.all() < *requests; done++ {
		l.converge(l.update())
	}
	if l.web.tasks = 3; *updateTasks != l.web.tasks {
		l.becomes("as many as before")
	}
	l.t.Logf("%d rolling updates of %d tasks, and %d requests so far", done, *updateTasks, l.all())
}

// agentsKilled kills agents in the moment in which the kernel has taken a change of theirs, of which they do not know yet.
func (l *load) agentsKilled() {
	machines := slices.Sorted(maps.Keys(l.hosts))
	commit := ""
	for range *serviceKills {
		machine := machines[l.random.IntN(len(machines))]
		changed := l.changes(machine)
		commit = l.update()
		l.must(changed(1 + l.random.IntN(4)))
		l.killAgent(machine)
	}
	l.converge(commit)
	l.allUp()
}

// killAgent kills the agent of a machine, and starts another one, which knows the names of before: nobody else has to be there.
func (l *load) killAgent(machine string) {
	l.t.Helper()
	l.must(l.agents[machine].end(syscall.SIGKILL, bound))
	l.slotsWhole(machine)
	l.start(machine)
	l.from(machine, "the agent is back", l.known("front"), 80, func(_ string, err error) bool { return err == nil })
}

// masterKilled kills the master in the middle of updates, and an agent while there is none.
func (l *load) masterKilled() {
	commit := ""
	for range *serviceKills {
		changed := l.changes("m2")
		commit = l.update()
		l.must(changed(1 + l.random.IntN(4)))
		l.must(l.master.end(syscall.SIGKILL, bound))
		l.killAgent("m2")
		l.restartMaster()
	}
	l.converge(commit)
	l.allUp()
}

func (l *load) drain() {
	file := "cells/" + l.name + "/machines.cue"
	spec := fmt.Appendf(nil, "package cells\n\nimport \"%s/muster\"\n\nmachine: m1: muster.#Machine & {cell: %q, drain: {}}\n", module, l.name)
	l.converge(l.grid.commit("drain", map[string][]byte{file: spec}))
	l.converge(l.grid.commit("no drain", map[string][]byte{file: nil}))
}

func (l *load) preempt() {
	l.large = true
	s := l.becomes("others come first")
	if at := onMachines(s, "web"); len(at) != 1 {
		l.t.Errorf("tasks of web are still on %v", at)
	}
	l.large = false
	l.becomes("they have gone")
}

func (l *load) scale() {
	for _, n := range []int{1, 6, 3} {
		l.web.tasks = n
		l.becomes(fmt.Sprintf("%d tasks", n))
	}
}

// move has the tasks of web leave a machine, since they must not be there any more.
func (l *load) move() {
	l.elsewhere()
	l.web.more = ""
	l.becomes("anywhere")
}

func (l *load) elsewhere() {
	l.t.Helper()
	l.web.more = `constraints: [{attribute: "is", operator: "!=", value: "m1"}]`
	if at := onMachines(l.becomes("elsewhere"), "web"); at["m1"] != "" {
		l.t.Errorf("tasks of web are still on %v", at)
	}
}

// rebalance waits until a task is moved because the others' machines have more of them. It is moved after five minutes.
func (l *load) rebalance() {
	l.web.tasks = 4
	l.elsewhere()
	l.web.more = ""
	s := l.becomes("anywhere")
	l.must(within(10*time.Minute, func() error {
		s = l.until("look", func(*status.Status) string { return "" })
		if at := onMachines(s, "web"); at["m1"] == "" || !s.Converged {
			return fmt.Errorf("tasks of web are on %v", at)
		}
		return nil
	}))
	if !slices.ContainsFunc(s.Tasks, func(t status.TaskStatus) bool { return strings.Contains(strings.Join(t.History, " "), "rebalance") }) {
		l.t.Error("no task has been moved for its spread")
	}
	l.web.tasks = 3
	l.becomes("three")
}

// rename gives another service a new name: those who are connected by the old one stay so, and it has gone for others.
func (l *load) rename() {
	for _, name := range []string{"aside", "side"} {
		l.hold("m1", l.side, l.virtual(l.side))
		l.hold("m2", l.side, l.virtual(l.side))
		was := l.side
		l.side = name
		l.becomes("renamed")
		l.each("the new name answers", l.known(name), 80, func(_ string, err error) bool { return err == nil })
		l.each("the old name is gone", l.known(was), 80, func(_ string, err error) bool { return err != nil && strings.Contains(err.Error(), "NXDOMAIN") })
	}
}

// reselect has the service pick the tasks of another job: those who are connected to the first one stay so.
func (l *load) reselect() {
	l.hold("m2", "front", l.virtual("front"))
	for _, tier := range []string{"next", "web"} {
		l.tier = tier
		l.becomes("another selector")
		l.each("the service is answered by "+tier, l.known("front"), 80, func(who string, err error) bool {
			return err == nil && strings.HasPrefix(who, tier+"/")
		})
	}
}

// renumber gives a service another port beside the one that is asked: those who are connected at the old one stay so.
func (l *load) renumber() {
	for _, change := range [][2]uint16{{8080, 8081}, {8081, 8080}} {
		was, is := change[0], change[1]
		l.hold("m1", "front's other port", netip.AddrPortFrom(l.virtual("front").Addr(), was))
		l.spare = strings.ReplaceAll(l.spare, fmt.Sprint(was), fmt.Sprint(is))
		l.becomes("another port")
		l.each("the new port is served", l.known("front"), is, func(who string, err error) bool { return err == nil && strings.HasPrefix(who, "web/") })
		l.each("the old port is refused", l.known("front"), was, func(_ string, err error) bool { return errors.Is(err, syscall.ECONNREFUSED) })
	}
}
