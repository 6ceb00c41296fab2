package main

import (
	"debug/elf"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent/strike"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/image/imagetest"
	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/nodeagent/secrets"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/sealed"
)

var (
	kills          = flag.Int("agent.kills", 40, "random moments at which agent or keepers are killed")
	containerKills = flag.Int("agent.containerkills", 30, "the same where tasks are containers")
	killSeed       = flag.Uint64("agent.seed", 0, "seed of the moments; 0 takes one of the clock")
)

// taskScript is what every task runs. It takes the lock of its index, which no
// other process of that index may have, whatever its generation, and writes into
// the index's journal what it does: each entry is one write to a file opened for
// appending. A failing task ends with another status at each start.
const taskScript = `#!/bin/sh
# usage: task.sh JOURNAL GENERATION service|batch|failing|before [prepared]
journal=$1 generation=$2
exec 9>>"$journal.lock"
flock -n 9
case $? in
0) ;;
1) echo "double $generation" >>"$journal" ;;
*) echo "lockless $generation" >>"$journal" ;;
esac
[ "$(cat "$MUSTER_SECRETS_DIR/key")" = "known to tasks" ] || echo "secretless $generation" >>"$journal"
[ -z "$4" ] || grep -q "^before $generation" "$journal" || echo "unprepared $generation" >>"$journal"
[ "$3" != before ] || { sleep 0.1; echo "before $generation" >>"$journal"; exit; }
n=$(grep -c "^start $generation " "$journal")
echo "start $generation $n" >>"$journal"
case $3 in
service) exec sleep 1000 ;;
batch) sleep 0.2; code=0 ;;
failing) sleep 0.3; code=$((n + 1)) ;;
esac
echo "end $generation $code" >>"$journal"
exit $code
`

// slot is a task index, of which one generation after the other runs.
type slot struct {
	job        string
	index      int
	generation uint64
	stop       bool
}

func (s *slot) kind() schema.JobKind {
	if s.job == "batch" {
		return schema.Batch
	}
	return schema.Service
}

// reportedEnd is what the agents said of one generation, in all reports together.
type reportedEnd struct {
	slot        string
	dead        *schema.Cause
	incarnation int                 // the newest
	ran         int                 // the newest that was a process
	exits       map[int]schema.Exit // by incarnation
	pids        map[int]int         // likewise: its process
	agent       int                 // which agent has reported the newest of pids
}

// killing is an agent and its master's memory.
type killing struct {
	*cell
	epoch    uint64 // the newest before the agent was started
	journals string // directory
	flags    []string
	moments  int    // of kills
	image    string // in whose containers the tasks run; "": they are processes
	rng      *rand.Rand
	slots    []*slot
	next     uint64
	reported map[uint64]*reportedEnd
	view     map[uint64]bool // generations of the newest view
	ended    int             // generations
	adopted  int             // processes that an agent had from the one before
	resting  bool            // nothing new begins
	killed   map[string]int
}

// Agent and keepers are killed at random moments while tasks of all kinds begin
// and end. No generation is doubled, none is lost, and what is reported of how tasks
// ended is what they themselves wrote down. None runs without its secret, of which nothing is
// left.
func TestRandomKills(t *testing.T) {
	t.Parallel()
	h := newKilling(t, *kills)
	h.journals = seenByTasks(t)
	h.flags = []string{"--writable", h.journals}
	script := filepath.Join(h.journals, "task.sh")
	if err := errors.Join(strike.Program(t.Context(), script, []byte(taskScript)), os.Chmod(h.journals, 0o777)); err != nil {
		t.Fatal(err)
	}
	h.run()
}

// TestRandomKillsContained is TestRandomKills with containers.
func TestRandomKillsContained(t *testing.T) {
	t.Parallel()
	if dynamic(t) {
		t.Skip("NOT TESTED: needs a test binary that runs in an image without libraries: CGO_ENABLED=0, as make test has it")
	}
	h := newKilling(t, *containerKills)
	flock, err := os.ReadFile(h.path("muster-agent"))
	if err != nil {
		t.Fatal(err)
	}
	layer := imagetest.Busybox(t, map[string]string{"bin/task.sh": taskScript, "usr/bin/flock": string(flock)})
	h.image = imagetest.NewRegistry(t).Add("task", imagetest.Of(t, layer, imagetest.Settings{Env: []string{"PATH=/usr/bin:/bin"}}))
	h.journals = h.path("state/sticky/local/u")
	h.run()
	if left := h.mounts(); len(left) > 0 {
		t.Errorf("left mounted: %q", left)
	}
}

// dynamic reports whether this test's binary needs libraries.
func dynamic(t *testing.T) bool {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// sealer gives machines the secret of all tasks.
type sealer struct{}

func (sealer) SealFor(_ *schema.SealedSecret, recipient string) (string, error) {
	r, err := sealed.ParseRecipient(recipient)
	if err != nil {
		return "", err
	}
	return sealed.Seal([]byte("known to tasks"), []sealed.Recipient{r}, "")
}

// newKilling makes a cell whose parts are killed at so many moments.
func newKilling(t *testing.T, moments int) *killing {
	seed := *killSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("again with: -run ^%s$ -agent.seed %d, and as many kills: %d", t.Name(), seed, moments)
	return &killing{moments: moments, cell: newCell(t), rng: rand.New(rand.NewPCG(seed, 0)), reported: map[uint64]*reportedEnd{}, killed: map[string]int{}}
}

// run kills, and checks that nothing is lost or left.
func (h *killing) run() {
	t := h.t
	t.Helper()
	// Enough that some run although each waits after a kill of its keeper.
	for i := range 6 {
		h.slots = append(h.slots, &slot{job: "service", index: 2 * i}, &slot{job: "service", index: 2*i + 1}, &slot{job: "batch", index: i})
	}
	h.slots = append(h.slots, &slot{job: "failing"})
	h.start(h.flags...)
	if h.linked(); h.image != "" && h.master.attributes()[schema.HasContainers] != "true" {
		h.signal(syscall.SIGINT)
		t.Skipf("NOT TESTED: needs a runtime of containers: %s", h.stderr)
	}
	if h.master.attributes()[schema.HasSecrets] != "true" {
		h.signal(syscall.SIGINT)
		t.Skipf("NOT TESTED: needs a file system in memory: %s", h.stderr)
	}
	h.assign()
	h.until("a task runs", func(list []schema.TaskStatus) bool { // a pull that is killed begins again
		return slices.ContainsFunc(list, func(s schema.TaskStatus) bool { return s.PID != 0 })
	})
	for range h.moments {
		longest := 80
		if h.rng.IntN(4) > 0 { // else it may die before it has got anywhere
			h.linked()
		}
		if h.rng.IntN(10) == 0 {
			longest = 800 // time for tasks to end by themselves
		}
		time.Sleep(time.Duration(h.rng.IntN(longest)) * time.Millisecond) // the moment is the scenario
		h.receive()
		h.kill()
		if t.Failed() {
			break
		}
	}
	h.rest()
	if t.Failed() {
		t.Logf("agent: %s", h.stderr)
	}
	if h.killed["agent"] == 0 || h.killed["keeper"] == 0 {
		t.Errorf("killed %v: want some of both", h.killed)
	}
	if h.adopted == 0 {
		t.Error("no process was seen by two agents")
	}
	t.Logf("killed %v; %d generations have ended; processes of one agent were the next one's, with the same pid, %d times", h.killed, h.ended, h.adopted)
}

// seenByTasks makes a directory of which tasks see what the test does: each has a
// /tmp of its own.
func seenByTasks(t *testing.T) string {
	t.Helper()
	home, _ := os.UserHomeDir() // "" if there is none
	for _, parent := range []string{"/var/lib", home, "/dev/shm"} {
		if dir, err := os.MkdirTemp(parent, "muster-kills-"); parent != "" && err == nil {
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			return dir
		}
	}
	t.Skip("NOT TESTED: no directory outside of /tmp can be written to")
	return ""
}

// rest lets all come to an end, and checks what is left.
func (h *killing) rest() {
	h.t.Helper()
	h.resting = true
	for _, s := range h.slots {
		s.stop = true
	}
	h.send()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		h.receive()
		if !slices.ContainsFunc(h.slots, func(s *slot) bool { t := h.reported[s.generation]; return t == nil || t.dead == nil }) {
			break
		}
		if time.Now().After(end) || h.t.Failed() {
			h.t.Errorf("not all have ended: %s", h.stderr)
			break
		}
	}
	h.checkJournals()
	h.checkMemory()
	if code := h.signal(syscall.SIGINT); code != 0 {
		h.t.Errorf("SIGINT: exit %d\n%s", code, h.stderr)
	}
	if left := h.processes(); len(left) > 0 {
		h.t.Errorf("left behind: %q", left)
	}
}

// checkMemory wants that no secret is left of tasks that have ended, whoever was killed.
func (h *killing) checkMemory() {
	h.t.Helper()
	m, err := secrets.Open(h.path("state"))
	if err != nil {
		h.t.Fatal(err)
	}
	var left []fs.DirEntry
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if left, err = os.ReadDir(m.Root()); err != nil || len(left) == 0 {
			break
		}
	}
	if len(left) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		h.t.Errorf("in memory there is left: %v, %v", left, err)
	}
}

// assign gives each slot that has none a generation, and sends the view.
func (h *killing) assign() {
	for _, s := range h.slots {
		if t := h.reported[s.generation]; s.generation == 0 || t != nil && t.dead != nil && !h.resting {
			h.next++
			s.generation, s.stop = h.next, false
		}
	}
	h.send()
}

// send sends the view that the slots make.
func (h *killing) send() {
	var view []schema.Assignment
	h.view = map[uint64]bool{}
	for _, s := range h.slots {
		view = append(view, h.assignment(s))
		h.view[s.generation] = true
	}
	slices.SortFunc(view, func(a, b schema.Assignment) int { return a.Task.Compare(b.Task) })
	h.push(view...)
}

// journal returns the path of a slot's journal: for containers in its sticky directory.
func (h *killing) journal(s *slot) string {
	if h.image != "" {
		return filepath.Join(h.journals, s.job, fmt.Sprint(s.index), nodeagent.StickyData, "journal")
	}
	return filepath.Join(h.journals, fmt.Sprintf("%s.%d", s.job, s.index))
}

func (h *killing) assignment(s *slot) schema.Assignment {
	job := &schema.Job{
		Name: s.job, User: "u", Cell: "local", Kind: s.kind(), Tasks: 3,
		Task: schema.TaskSpec{
			Process: schema.Process{Command: []string{
				filepath.Join(h.journals, "task.sh"), h.journal(s), fmt.Sprint(s.generation), s.job,
			}},
			Resources:    schema.TaskResources{Resources: schema.Resources{CPUMilli: 10, RAMBytes: 64 << 20, DiskBytes: 1 << 20}},
			GraceSeconds: 5,
			Secrets:      map[string]schema.TaskSecret{"key": {Sealed: &schema.SealedSecret{Version: "one"}}},
		},
	}
	if h.image != "" {
		h.contain(&job.Task, s)
	}
	a := schema.Assignment{Task: job.ID().Task(s.index), Generation: s.generation, Data: schema.DigestOf(job), Job: job}
	if s.stop {
		a.Stop = &schema.Cause{Kind: schema.CauseUpdate, At: time.Now()}
	}
	return a
}

// contain has a task run in the image: each fourth after a command that runs before it, and
// each fifth in a kernel of its own, where the machine can do that.
func (h *killing) contain(t *schema.TaskSpec, s *slot) {
	command := []string{"task.sh", "/muster/sticky/journal", fmt.Sprint(s.generation), s.job}
	container := schema.Container{Image: h.image}
	if s.index%5 == 4 && h.master.attributes()[schema.Runsc.Attribute()] == "true" {
		container.Runtime = schema.Runsc
	}
	if s.index%4 == 3 {
		before := container
		before.Command = []string{"task.sh", "/muster/sticky/journal", fmt.Sprint(s.generation), "before"}
		t.Before = []schema.Before{{Container: &before}}
		command = append(command, "prepared")
	}
	container.Command = command
	t.Process, t.Sticky, t.Container = schema.Process{}, schema.StickyHere, &container
}

// receive takes the newest report and goes on from it.
func (h *killing) receive() {
	h.t.Helper()
	h.master.mu.Lock()
	r := h.master.report
	h.master.mu.Unlock()
	seen := map[uint64]bool{}
	changed := false
	for i := range r.Tasks {
		s := &r.Tasks[i]
		seen[s.Generation] = true
		changed = h.take(s) || changed
	}
	for g := range h.view {
		if r.View == h.version && !seen[g] {
			h.t.Errorf("generation %d of %v is lost: the report of view %d has %v", g, h.view, r.View, seen)
		}
	}
	for _, s := range h.slots {
		if s.job == "service" && !s.stop && !h.resting && h.rng.IntN(20) == 0 {
			s.stop, changed = true, true
		}
	}
	if changed {
		h.assign()
	}
}

// take compares what is said of a generation with what was said before, and
// reports whether it has ended now.
func (h *killing) take(s *schema.TaskStatus) (ended bool) {
	h.t.Helper()
	k := h.reported[s.Generation]
	if k == nil {
		k = &reportedEnd{slot: fmt.Sprintf("%s.%d", s.Task.Job, s.Task.Index), exits: map[int]schema.Exit{}, pids: map[int]int{}}
		h.reported[s.Generation] = k
	}
	if k.dead != nil && s.State != schema.Dead {
		h.t.Errorf("%s generation %d is %s after it was called dead", k.slot, s.Generation, s.State)
	}
	// One that was about to start when its agent was killed may never have been.
	if s.Incarnation < k.ran {
		h.t.Errorf("%s generation %d has incarnation %d after %d ran", k.slot, s.Generation, s.Incarnation, k.ran)
	}
	if k.incarnation = s.Incarnation; s.PID != 0 {
		k.ran = s.Incarnation
		h.comparePID(k, s)
	}
	for _, e := range s.Exits {
		if was, ok := k.exits[e.Incarnation]; ok && (was.Code != e.Code || was.Signal != e.Signal) {
			h.t.Errorf("%s generation %d: incarnation %d %s, and before: %s", k.slot, s.Generation, e.Incarnation, e, was)
		}
		k.exits[e.Incarnation] = e
	}
	if s.State == schema.Dead && k.dead == nil {
		k.dead = s.End
		h.ended++
		return true
	}
	return false
}

// comparePID checks that an incarnation is the process that it was, whichever agent says so.
func (h *killing) comparePID(k *reportedEnd, s *schema.TaskStatus) {
	h.t.Helper()
	was, known := k.pids[s.Incarnation]
	agent := h.killed["agent"]
	switch {
	case known && was != s.PID:
		h.t.Errorf("%s generation %d: incarnation %d is process %d, and was %d", k.slot, s.Generation, s.Incarnation, s.PID, was)
	case known && k.agent != agent:
		h.adopted++
	}
	k.pids[s.Incarnation], k.agent = s.PID, agent
}

// linked waits until the agent that was started last has joined.
func (h *killing) linked() {
	h.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		h.master.mu.Lock()
		now := h.master.epoch
		h.master.mu.Unlock()
		if now > h.epoch {
			return
		}
		if time.Now().After(end) {
			h.t.Fatalf("the agent has not joined within 30 s: %s", h.stderr)
		}
	}
}

// kill kills the agent, a keeper, or first one and then the other.
func (h *killing) kill() {
	h.t.Helper()
	who := h.rng.IntN(5)
	if who != 0 {
		h.killKeeper()
	}
	if h.rng.IntN(3) == 0 {
		h.killSpare()
	}
	if who <= 2 {
		h.killed["agent"]++
		h.signal(syscall.SIGKILL)
		h.master.mu.Lock()
		h.epoch = h.master.epoch
		h.master.mu.Unlock()
		h.start(h.flags...)
	}
}

// killKeeper kills the keeper of a task that runs, if there is one.
func (h *killing) killKeeper() {
	files, err := filepath.Glob(h.path("state/tasks/local/u/*/*/*/*/" + keeper.StateFile))
	if err != nil {
		h.t.Fatal(err)
	}
	h.rng.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	for _, name := range files {
		var state keeper.State
		b, err := os.ReadFile(name)
		if err != nil || json.Unmarshal(b, &state) != nil {
			continue // it was removed meanwhile
		}
		if killOne(state.Keeper) {
			h.killed["keeper"]++
			return
		}
	}
}

// killSpare kills the keeper that waits for the next task, if there is one. It may have got that just
// now.
func (h *killing) killSpare() {
	h.t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		h.t.Fatal(err)
	}
	for _, name := range names {
		waits := func() bool {
			b, err := os.ReadFile(name)
			return err == nil && strings.Contains(string(b), "\x00spare\x00"+h.path("state")+"\x00")
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil || !waits() {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		if waits() && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil {
			h.killed["spare"]++
		}
		_ = unix.Close(fd)
	}
}

// killOne kills a process if it is still the one that is meant.
func killOne(id keeper.Identity) bool {
	fd, err := unix.PidfdOpen(id.PID, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id.PID))
	if err != nil {
		return false
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	return f[0] != "Z" && f[19] == fmt.Sprint(id.Start) && unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}

// processes lists what is alive of this cell but the agent: by the directory in
// its command line or its environment.
func (h *killing) processes() (left []string) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		left = nil
		dirs, _ := filepath.Glob("/proc/[0-9]*")
		for _, d := range dirs {
			cmd, _ := os.ReadFile(filepath.Join(d, "cmdline"))
			env, _ := os.ReadFile(filepath.Join(d, "environ"))
			if strings.Contains(string(cmd)+"\x00"+string(env), h.dir+"/") {
				left = append(left, filepath.Base(d)+" "+strings.ReplaceAll(string(cmd), "\x00", " "))
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			return left
		}
	}
}

// mounts lists what is mounted of this cell where the test sees it.
func (h *killing) mounts() (left []string) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		h.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.Contains(line, h.dir+"/") {
			left = append(left, line)
		}
	}
	return left
}
