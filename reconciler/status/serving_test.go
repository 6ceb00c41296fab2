package status

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
)

// front is a service over two jobs, of which next gets little, and three tasks that are ready.
func front(change func(*Status, *ServiceStatus)) (*Snapshot, *ServiceStatus) {
	at := schema.NewPorts(schema.Port{Name: "http", Port: 8080})
	s := &Status{
		Cell: "c",
		Jobs: []JobStatus{{Name: "u/next", Labels: map[string]string{"tier": "front", "track": "canary"}}, {Name: "u/web", Labels: map[string]string{"tier": "front"}}, {Name: "v/web", Labels: map[string]string{"tier": "front"}}},
		Tasks: []TaskStatus{
			{Name: "u/next/0", State: TaskRunning, Machine: "m1", Address: "10.0.0.1", Ports: at},
			{Name: "u/web/0", State: TaskRunning, Machine: "m1", Address: "10.0.0.1", Ports: at},
			{Name: "u/web/1", State: TaskRunning, Machine: "m2", Address: "10.0.0.2", Ports: at, Health: schema.Healthy},
			{Name: "v/web/0", State: TaskRunning, Machine: "m2", Address: "10.0.0.2", Ports: at},
		},
		Machines: []MachineStatus{{Name: "m1", Health: "up", Attributes: map[string]string{schema.HasServices: "true"}}, {Name: "m2", Health: "up", Attributes: map[string]string{schema.HasServices: "true"}}},
	}
	v := &ServiceStatus{DirectoryService: schema.DirectoryService{
		ServiceSpec: schema.ServiceSpec{
			User: "u", Name: "front", Cell: "c", Selector: "tier=front", Ports: map[string]schema.ServicePort{"web": {Port: 80, Target: "http"}},
			Weights: []schema.ServiceWeight{{Selector: "track=canary", Weight: 5}},
		},
		Addresses: []netip.Addr{netip.MustParseAddr("10.80.0.1")},
	}}
	if change != nil {
		change(s, v)
	}
	return SnapshotOf(s).WithServices([]*ServiceStatus{v}), v
}

func TestServing(t *testing.T) {
	t.Parallel()
	const noon = "2030-01-01T12:00:00Z"
	now, err := time.Parse(time.RFC3339, noon)
	if err != nil {
		t.Fatal(err)
	}
	sick := func(s *Status, _ *ServiceStatus) {
		for i := range s.Tasks {
			s.Tasks[i].Health = schema.Unhealthy
		}
	}
	for name, tt := range map[string]struct {
		change     func(*Status, *ServiceStatus)
		behind     map[string]time.Time
		ready, all int
		sends      Sends
		lines      []string // that are among those of the explanation
	}{
		"all are ready": {nil, nil, 3, 3, SendsToReady, []string{
			"service u/front: 3 of 3 endpoints ready", "  front.u.svc.c.muster.internal at 10.80.0.1, web:80", "  picks tier=front of u/next, u/web",
			"  sends connections to those that are ready", "  task u/next/0 on m1: is an endpoint (weight 5)", "  task u/web/1 on m2: is an endpoint",
		}},
		"none is ready": {sick, nil, 0, 3, SendsToAll, []string{"  because: no task is ready", "  sends connections to all, since none is ready", "  task u/web/1 on m2: is an endpoint, though not ready: it is running"}},
		"none is ready, and it refuses": {func(s *Status, v *ServiceStatus) { sick(s, v); v.WhenNoneReady = schema.Refuse }, nil, 0, 3, SendsNowhere, []string{
			"  sends connections nowhere: they are refused", "  task u/web/1 on m2: is no endpoint: it is not ready: it is running",
		}},
		"one stops": {func(s *Status, _ *ServiceStatus) { s.Tasks[1].State, s.Tasks[1].Reason = TaskStopping, "update" }, nil, 2, 3, SendsToReady, []string{
			"  task u/web/0 on m1: is no endpoint: it is not ready: update",
		}},
		"one has ended": {func(s *Status, _ *ServiceStatus) { s.Tasks[1].State = TaskDone }, nil, 2, 2, SendsToReady, []string{"  task u/web/0 on m1: is no endpoint: it is done"}},
		"weight 0":      {func(_ *Status, v *ServiceStatus) { v.Weights[0].Weight = 0 }, nil, 2, 2, SendsToReady, []string{"  task u/next/0 on m1: is no endpoint: its weight is 0"}},
		"one has no such port": {func(s *Status, v *ServiceStatus) {
			s.Tasks[1].Ports = schema.NewPorts(schema.Port{Name: "admin", Port: 1})
			v.Ports["admin"] = schema.ServicePort{Port: 81}
		}, nil, 3, 3, SendsToReady, []string{"  task u/web/0 on m1: is an endpoint of admin alone: it has no port http"}},
		"its machine has no address": {func(s *Status, _ *ServiceStatus) { s.Tasks[1].Address = "" }, nil, 2, 2, SendsToReady, []string{"  task u/web/0 on m1: is no endpoint: " + noAddress}},
		"its machine is at loopback": {func(s *Status, _ *ServiceStatus) { s.Tasks[1].Address = "127.0.0.1" }, nil, 2, 2, SendsToReady, []string{
			"  task u/web/0 on m1: is no endpoint: its address 127.0.0.1 means something else on each machine: start its agent with --address",
		}},
		"one of another family": {func(s *Status, _ *ServiceStatus) { s.Tasks[1].Address = "fd00::1" }, nil, 2, 2, SendsToReady, []string{
			"  task u/web/0 on m1: is no endpoint: its address fd00::1 is not of the family of the service's: 10.80.0.1",
		}},
		"two families": {func(s *Status, v *ServiceStatus) {
			s.Tasks[1].Address6 = "fd00::1"
			v.Addresses = append(v.Addresses, netip.MustParseAddr("fd01::1"))
		}, nil, 3, 3, SendsToReady, []string{"  task u/web/0 on m1: is an endpoint", "  task u/web/1 on m2: is an endpoint, not of fd01::1: it has no address of that family"}},
		"no job": {func(_ *Status, v *ServiceStatus) { v.Selector = "tier=back" }, nil, 0, 0, SendsNowhere, []string{"  because: no job of its user has labels that match tier=back"}},
		"machines": {func(s *Status, _ *ServiceStatus) {
			s.Machines[0].Attributes = nil
			s.Machines[0].Notes = []string{"services: nftables is missing"}
			s.Machines = append(s.Machines, MachineStatus{Name: "m3", Health: "up"}, MachineStatus{Name: "m4", Health: "silent", Attributes: s.Machines[1].Attributes})
		}, map[string]time.Time{"m2": now.Add(-1500 * time.Millisecond)}, 3, 3, SendsToReady, []string{
			"  machine m1 cannot send: nftables is missing", "  machine m2 has not acknowledged what has changed, for 1.5s",
			"  machine m3 cannot send: its agent is of an earlier release", "  machine m4 is silent, and sends as it did last",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, v := front(tt.change)
			x := s.ExplainService(v, tt.behind, now)
			if x.Ready != tt.ready || x.All != tt.all || x.Sends != tt.sends {
				t.Errorf("%d of %d, %q", x.Ready, x.All, x.Sends)
			}
			for _, want := range tt.lines {
				if !slices.Contains(x.Lines(), want) {
					t.Errorf("%q is missing in\n%s", want, strings.Join(x.Lines(), "\n"))
				}
			}
			sent := map[string]bool{}
			for _, e := range x.Endpoints {
				sent[e.Name] = len(e.Sent) > 0
			}
			if some := slices.Contains(slices.Collect(maps.Values(sent)), true); some != (x.Sends != SendsNowhere) {
				t.Errorf("%s, and endpoints: %v", x.Sends, sent)
			}
		})
	}
}

func TestConcerns(t *testing.T) {
	t.Parallel()
	s, v := front(func(_ *Status, v *ServiceStatus) { v.Selector = "track=canary" })
	concerns := s.Concerns(v)
	for key, want := range map[string]bool{
		"service/u/front": true, "service/u/other": false, "tasks/u/next/0": true, "tasks/u/next/12": true, "tasks/u/web/0": false, "tasks/u/gone/0": true,
		"tasks/v/web/0": false, "tasks/v/gone/0": false, "machine/m1": false, "cell": false,
	} {
		if got := concerns(key); got != want {
			t.Errorf("%s: %v", key, got)
		}
	}
}
