package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
)

// certificateLife is short, so that a test sees several certificates come and
// go.
const certificateLife = 6 * time.Second

// spread is a cell whose machines are hosts of a network.
type spread struct {
	*cell
	net    *network
	agents map[string]*daemon // by machine
}

// newSpread starts a master on the hub; life is that of machines' certificates.
func newSpread(t *testing.T, life time.Duration) *spread {
	t.Helper()
	c := prepare(t)
	s := &spread{cell: c, net: newNetwork(t), agents: map[string]*daemon{}}
	t.Cleanup(s.stop)
	c.initRepo()
	s.muster("pki", "init", "--dir", c.path("pki"), "--cell", cellName, "--host", address0(0))
	s.muster("pki", "issue", "ada", "--dir", c.path("pki"), "--role", "operator", "--out", c.path("ada.pem"))
	m, err := s.launch(0, "master", "muster", append([]string{
		"master", "--cell", cellName, "--data-dir", c.path("master"), "--link", c.path("link", "agent.sock"),
		"--pki", c.path("pki"), "--listen", address0(0) + ":7420", "--link-listen", address0(0) + ":7421",
		"--machine-life", life.String(),
	}, c.follows...)...)
	c.must(err)
	c.master = m
	select {
	case line := <-m.said:
		if want := "muster: cell e2e at https://10.99.0.1:7420"; line != want {
			t.Fatalf("the master said %q, want %q", line, want)
		}
	case <-time.After(bound):
		t.Fatal("the master has not said its address")
	}
	return s
}

// launch starts a program on a host.
func (s *spread) launch(host int, log, program string, args ...string) (*daemon, error) {
	line := s.net.on(host, append([]string{filepath.Join(s.bin, program)}, args...)...)
	return launch(s.path(log+".log"), line[0], line[1:]...)
}

// muster runs a command on the hub and returns its output.
func (s *spread) muster(args ...string) []byte {
	s.t.Helper()
	out, err := s.try(args...)
	if err != nil {
		s.t.Fatalf("muster %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (s *spread) command(args ...string) *exec.Cmd {
	line := s.net.on(0, append([]string{filepath.Join(s.bin, "muster")}, args...)...)
	cmd := exec.CommandContext(s.t.Context(), line[0], line[1:]...)
	cmd.Env = append(os.Environ(), "MUSTER_MASTER=https://"+address0(0)+":7420", "MUSTER_CERT="+s.path("ada.pem"))
	return cmd
}

func (s *spread) try(args ...string) ([]byte, error) {
	cmd := s.command(args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, &stderr)
	}
	return out, err
}

// token writes a join token for a machine into a file and returns its name.
func (s *spread) token(machine string) string {
	s.t.Helper()
	file := s.path(machine + ".token")
	s.must(os.WriteFile(file, s.muster("pki", "token", machine, "--dir", s.path("pki")), 0o600))
	return file
}

// agent starts an agent on a host, which calls its state directory as log.
func (s *spread) agent(host int, log string, args ...string) *daemon {
	s.t.Helper()
	a, err := s.launch(host, log, "muster-agent", append([]string{
		"--master", address0(0) + ":7421", "--state-dir", s.path("state-" + log),
	}, args...)...)
	s.must(err)
	s.agents[log] = a
	return a
}

// refused waits for an agent to end by itself with a code and a word on why.
func (s *spread) refused(host int, code int, want string, args ...string) {
	s.t.Helper()
	a := s.agent(host, "thief", args...)
	select {
	case <-a.done:
	case <-time.After(bound):
		s.t.Fatalf("the agent has not ended: want %q", want)
	}
	delete(s.agents, "thief")
	log := s.log("thief")
	if got := a.cmd.ProcessState.ExitCode(); got != code || !strings.Contains(log, want) {
		s.t.Errorf("exit code %d, want %d and %q:\n%s", got, code, want, log)
	}
	s.must(os.Remove(s.path("thief.log")))
}

func (s *spread) log(name string) string {
	b, err := os.ReadFile(s.path(name + ".log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Error(err)
	}
	return string(b)
}

func (s *spread) status() *status.Status {
	s.t.Helper()
	status := new(status.Status)
	s.must(json.Unmarshal(s.muster("status", "-o", "json"), status))
	return status
}

// up waits until the machines have what the repository says.
func (s *spread) up(machines int) {
	s.t.Helper()
	s.must(within(bound, func() error {
		status := s.status()
		n := 0
		for _, m := range status.Machines {
			if m.Health == string(model.HealthUp) {
				n++
			}
		}
		if n != machines || !status.Converged || len(status.Tasks) != machines {
			return fmt.Errorf("%d machines are up, %d tasks: %s", n, len(status.Tasks), strings.Join(status.Waiting, "; "))
		}
		return nil
	}))
}

// stop ends the agents with their tasks, and then the master.
func (s *spread) stop() {
	if s.t.Failed() {
		for name := range s.agents {
			log := s.log(name)
			s.t.Logf("the end of %s.log:\n%s", name, log[max(0, len(log)-4000):])
		}
	}
	for _, a := range s.agents {
		s.check(a.end(syscall.SIGINT, bound))
	}
	if s.master != nil {
		s.check(s.master.end(syscall.SIGTERM, bound))
	}
}

// pids returns which process each task is.
func (s *spread) pids() map[string]int {
	s.t.Helper()
	out := map[string]int{}
	for _, t := range s.status().Tasks {
		out[t.Name+" on "+t.Machine] = t.PID
	}
	return out
}

// talker is a task on each machine that counts aloud.
const talker = `package crew

import "` + module + `/muster"

job: talk: muster.#Job & {
	user: "crew", cell: "` + cellName + `", kind: "system"
	task: {
		process: command: ["/bin/sh", "-c", "i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done"]
		resources: {cpuMilli: 10, ramBytes: 16Mi, diskBytes: 8Mi}
		graceSeconds: 1
	}
}
`

// listener reads the log of a task for as long as it comes.
type listener struct {
	cmd *exec.Cmd

	mu   sync.Mutex // guards what follows
	last int
	gap  string // the first thing that is not the next number
	done bool
}

func (s *spread) follow(task string) *listener {
	s.t.Helper()
	f := &listener{cmd: s.command("logs", "-f", "--tail", "1", task)}
	out, err := f.cmd.StdoutPipe()
	s.must(err)
	s.must(f.cmd.Start())
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			n, err := strconv.Atoi(lines.Text())
			f.mu.Lock()
			if f.gap == "" && (err != nil || f.last != 0 && n != f.last+1) {
				f.gap = fmt.Sprintf("%q after %d", lines.Text(), f.last)
			}
			f.last = n
			f.mu.Unlock()
		}
		f.mu.Lock()
		f.done = true
		f.mu.Unlock()
	}()
	return f
}

// state returns the last number, and errs when one is missing or it has ended.
func (f *listener) state() (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.gap != "":
		return f.last, errors.New(f.gap)
	case f.done:
		return f.last, errors.New("the log has ended")
	}
	return f.last, nil
}

func (f *listener) stop() {
	_ = f.cmd.Process.Kill()
	_ = f.cmd.Wait() // it was killed
}

// TestMachinesElsewhere has three machines in networks of their own join by
// token, thieves that are refused, and certificates that are renewed while logs
// are read: no session ends for it, no task, and no line is lost.
func TestMachinesElsewhere(t *testing.T) {
	t.Parallel()
	s := newSpread(t, certificateLife)
	s.commit("a talker", map[string][]byte{teamFile: []byte(talker)})
	hosts := map[string]int{}
	tokens := map[string]string{}
	for _, name := range []string{"m1", "m2"} {
		hosts[name], tokens[name] = s.net.attach(), s.token(name)
		s.agent(hosts[name], name, "--token-file", tokens[name])
	}
	s.up(2)

	third := s.net.attach()
	mine := s.token("m3")
	s.refused(third, 3, "the join token of machine m1 was used at", "--token-file", tokens["m1"])
	s.refused(third, 2, "it is for machine m3, and this agent is m1", "--token-file", mine, "--name", "m1")
	stolen, err := os.ReadFile(filepath.Join(s.path("state-m1"), "identity.json"))
	s.must(err)
	s.must(os.WriteFile(filepath.Join(s.path("state-thief"), "identity.json"), stolen, 0o600))
	s.refused(third, 2, "it is for machine m1, and this agent is m3", "--name", "m3")
	s.agent(third, "m3", "--token-file", mine)
	s.up(3)

	// Which task is whose: the machines keep theirs through all that follows.
	before := s.pids()
	follow := map[string]*listener{}
	for _, task := range s.status().Tasks {
		follow[task.Machine] = s.follow(task.Name)
		t.Cleanup(follow[task.Machine].stop)
	}
	for since := time.Now(); time.Since(since) < 3*certificateLife; time.Sleep(100 * time.Millisecond) {
		for machine, f := range follow {
			if _, err := f.state(); err != nil {
				t.Fatalf("log of machine %s: %v", machine, err)
			}
		}
	}
	for machine, f := range follow {
		if n, _ := f.state(); n < 100 {
			t.Errorf("machine %s: only %d lines", machine, n)
		}
		log := s.log(machine)
		if n := strings.Count(log, "certificate renewed"); n < 3 {
			t.Errorf("machine %s renewed its certificate %d times in %v", machine, n, 3*certificateLife)
		}
		if n := strings.Count(log, "linked to the master"); n != 1 {
			t.Errorf("machine %s had %d sessions, want 1", machine, n)
		}
	}
	for task, pid := range s.pids() {
		if before[task] != pid {
			t.Errorf("task %s is process %d, was %d", task, pid, before[task])
		}
	}
	s.revokeOne("m2", before)
}

// revokeOne puts a machine out, whose tasks run on, and has it join again.
func (s *spread) revokeOne(machine string, before map[string]int) {
	s.t.Helper()
	s.muster("pki", "revoke", "machine/"+machine, "--dir", s.path("pki"))
	s.must(within(bound, func() error {
		if !strings.Contains(s.log(machine), "machine/"+machine+" was revoked at") {
			return errors.New("the agent has not learned that it is out")
		}
		return nil
	}))
	for task, pid := range before {
		if _, err := look(pid); err != nil {
			s.t.Errorf("task %s: %v", task, err)
		}
	}
	s.token(machine)
	s.must(within(bound, func() error {
		if n := strings.Count(s.log(machine), "linked to the master"); n != 2 {
			return fmt.Errorf("%d sessions: it has not come back with a new token", n)
		}
		return nil
	}))
	s.up(3)
}
