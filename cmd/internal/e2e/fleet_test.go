package e2e_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
)

// fleet is a cell of several agents on this host, each with a state directory,
// cgroup and ports of its own, which the master takes for as many machines.
type fleet struct {
	*cell
	agents map[string]*daemon
	ports  map[string]string // by machine, as --ports
	flags  []string          // further ones of each agent
}

// newFleet starts a cell of machines m1, m2 and so on, whose master gets further
// flags.
func newFleet(t *testing.T, machines int, flags ...string) *fleet {
	t.Helper()
	return newFleetOf(t, machines, nil, flags...)
}

// newFleetOf is newFleet with further flags of each agent.
func newFleetOf(t *testing.T, machines int, agent []string, flags ...string) *fleet {
	t.Helper()
	f := &fleet{cell: prepare(t), agents: map[string]*daemon{}, ports: map[string]string{}, flags: agent}
	t.Cleanup(f.stop)
	f.follows = append(f.follows, flags...)
	f.initRepo()
	f.startMaster()
	for i := range machines {
		name := fmt.Sprintf("m%d", i+1)
		f.ports[name] = freePorts(t)
		f.start(name)
	}
	f.until("the agents join", func(s *status.Status) string {
		up := 0
		for _, m := range s.Machines {
			if m.Health == string(model.HealthUp) {
				up++
			}
		}
		if up == machines {
			return ""
		}
		return fmt.Sprintf("%d machines are up", up)
	})
	return f
}

// start starts a machine's agent.
func (f *fleet) start(machine string) {
	f.t.Helper()
	args := append([]string{
		"--cell", cellName, "--master", "unix:" + f.path("link", "agent.sock"),
		"--name", machine, "--state-dir", f.path("state-" + machine), "--ports", f.ports[machine], "--writable", f.path("journals"), neverOverloaded,
	}, f.flags...)
	a, err := launch(f.path(machine+".log"), filepath.Join(f.bin, "muster-agent"), args...)
	f.must(err)
	f.agents[machine] = a
}

// stop ends the agents with their tasks. The logs of a test that failed are
// printed.
func (f *fleet) stop() {
	for name, a := range f.agents {
		if f.t.Failed() {
			b, _ := os.ReadFile(f.path(name + ".log"))
			f.t.Logf("the end of %s.log:\n%s", name, b[max(0, len(b)-4000):])
		}
		_ = a.cmd.Process.Signal(syscall.SIGCONT) // one that a failed test has left stopped
	}
	for _, a := range f.agents {
		f.check(a.end(syscall.SIGINT, bound))
	}
}

// portsEach is how many ports a machine has.
const portsEach = 20

// freePorts returns a range of ports that nobody listens on.
func freePorts(t *testing.T) string {
	t.Helper()
	var lc net.ListenConfig
	for range 100 {
		l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		_ = l.Close()
		var first int
		if _, err := fmt.Sscan(port, &first); err != nil {
			t.Fatal(err)
		}
		if free(t, first) {
			return fmt.Sprintf("%d-%d", first, first+portsEach-1)
		}
	}
	t.Fatalf("no %d ports in a row are free", portsEach)
	return ""
}

func free(t *testing.T, first int) bool {
	t.Helper()
	var lc net.ListenConfig
	for port := first; port < first+portsEach; port++ {
		l, err := lc.Listen(t.Context(), "tcp", fmt.Sprintf(":%d", port))
		if err != nil || port > 65535 {
			return false
		}
		_ = l.Close()
	}
	return true
}

// health returns how the master finds a machine.
func health(s *status.Status, machine string) string {
	for _, m := range s.Machines {
		if m.Name == machine {
			return m.Health
		}
	}
	return "unknown"
}

// tasksOn returns the tasks that a machine holds, by name.
func tasksOn(s *status.Status, machine string) map[string]status.TaskStatus {
	out := map[string]status.TaskStatus{}
	for _, t := range s.Tasks {
		if t.Machine == machine {
			out[t.Name] = t
		}
	}
	return out
}

// soon is how quickly a superseded generation must be gone once its machine is
// back.
const soon = 10 * time.Second
