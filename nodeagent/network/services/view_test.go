package services_test

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/musterhq/muster/nodeagent/naming"
	"github.com/musterhq/muster/nodeagent/network/services"
	"github.com/musterhq/muster/schema"
)

func task(index int, machine, address string, ports ...schema.Port) schema.DirectoryTask {
	return schema.DirectoryTask{Index: index, Machine: machine, Address: netip.MustParseAddr(address), Ready: true, Ports: schema.NewPorts(ports...)}
}

func entries(spec schema.ServiceSpec, list ...schema.DirectoryTask) []schema.DirectoryEntry {
	spec.Name, spec.User, spec.Selector = "front", "ana", "app=web"
	return []schema.DirectoryEntry{
		{Service: &schema.DirectoryService{ServiceSpec: spec, Addresses: []netip.Addr{netip.MustParseAddr("10.96.0.1")}}},
		{Tasks: &schema.DirectoryTasks{User: "ana", Job: "web", Labels: map[string]string{"app": "web"}, Tasks: list}},
	}
}

func TestServiceOfADirectory(t *testing.T) {
	t.Parallel()
	http, dns := schema.Port{Name: "http", Port: 20001}, schema.Port{Name: "dns", Port: 20002}
	d := naming.New()
	d.Apply(schema.DirectoryChange{Whole: true, Set: entries(
		schema.ServiceSpec{
			Ports:  map[string]schema.ServicePort{"web": {Port: 80, Target: "http"}, "dns": {Port: 53, Protocol: schema.UDP}},
			Sticky: schema.StickyClient, Prefer: schema.PreferMachine, Weights: []schema.ServiceWeight{{Selector: "app=web", Weight: 7}},
		},
		task(0, "m0", "10.0.0.1", http, dns), task(1, "m1", "10.0.0.2", http), task(2, "m1", "10.0.0.3"),
	)})
	turn := services.NewView("m1").Turn(d.Snapshot(), nil)
	backend := func(at string, local bool) services.Backend {
		return services.Backend{At: netip.MustParseAddrPort(at), Weight: 7, Local: local}
	}
	want := services.Turn{Ended: map[netip.AddrPort]struct{}{}, Left: map[netip.AddrPort]struct{}{}, Set: []*services.Service{{
		Key: "ana/front", Addresses: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, Sticky: true, PreferLocal: true,
		Ports: []services.Port{
			{Protocol: services.UDP, Port: 53, Backends: []services.Backend{backend("10.0.0.1:20002", false)}},
			{Protocol: services.TCP, Port: 80, Backends: []services.Backend{backend("10.0.0.1:20001", false), backend("10.0.0.2:20001", true)}},
		},
	}}}
	if diff := cmp.Diff(want, turn, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})); diff != "" {
		t.Error(diff)
	}
}

func dual(t schema.DirectoryTask, address string) schema.DirectoryTask {
	t.Address6 = netip.MustParseAddr(address)
	return t
}

func TestTwoFamilies(t *testing.T) {
	t.Parallel()
	http := schema.Port{Name: "http", Port: 80}
	spec := schema.ServiceSpec{Ports: map[string]schema.ServicePort{"http": {Port: 80}}}
	d, v := naming.New(), services.NewView("m0")
	first := task(0, "m0", "10.0.0.1", http)
	d.Apply(schema.DirectoryChange{Whole: true, Set: entries(spec, first)})
	v.Turn(d.Snapshot(), nil)
	for _, step := range []struct {
		what            string
		task            schema.DirectoryTask
		backends, ended []string
	}{
		{"a newer master knows the other address", dual(first, "fd00::1"), []string{"10.0.0.1:80", "[fd00::1]:80"}, nil},
		{"one of two has changed", dual(first, "fd00::2"), []string{"10.0.0.1:80", "[fd00::2]:80"}, []string{"[fd00::1]:80"}},
		{"both have", dual(task(0, "m0", "10.0.0.9", http), "fd00::9"), []string{"10.0.0.9:80", "[fd00::9]:80"}, []string{"10.0.0.1:80", "[fd00::2]:80"}},
		{"an older master knows one", task(0, "m0", "10.0.0.9", http), []string{"10.0.0.9:80"}, []string{"[fd00::9]:80"}},
	} {
		touched := d.Apply(schema.DirectoryChange{Set: entries(spec, step.task)})
		turn := v.Turn(d.Snapshot(), touched.Services)
		var backends, ended []string
		for _, b := range turn.Set[0].Ports[0].Backends {
			backends = append(backends, b.At.String())
		}
		for _, at := range slices.SortedFunc(maps.Keys(turn.Ended), netip.AddrPort.Compare) {
			ended = append(ended, at.String())
		}
		if !slices.Equal(backends, step.backends) || !slices.Equal(ended, step.ended) {
			t.Errorf("%s: backends %v, ended %v; want %v and %v", step.what, backends, ended, step.backends, step.ended)
		}
		var alive []string
		for _, at := range slices.SortedFunc(maps.Keys(services.Alive(d.Snapshot())), netip.AddrPort.Compare) {
			alive = append(alive, at.String())
		}
		if !slices.Equal(alive, step.backends) {
			t.Errorf("%s: alive at %v, want %v", step.what, alive, step.backends)
		}
	}
}

// What is only not sent to any more has not ended.
func TestEnded(t *testing.T) {
	t.Parallel()
	http := schema.Port{Name: "http", Port: 80}
	spec := schema.ServiceSpec{Ports: map[string]schema.ServicePort{"http": {Port: 80}}}
	first := []schema.DirectoryTask{task(0, "m0", "10.0.0.1", http), task(1, "m0", "10.0.0.2", http)}
	notReady := slices.Clone(first)
	notReady[0].Ready = false
	for name, c := range map[string]struct {
		change schema.DirectoryChange
		ended  []string
		left   []string // besides
	}{
		"not ready":          {schema.DirectoryChange{Set: entries(spec, notReady...)}, nil, []string{"10.0.0.1:80"}},
		"gone":               {schema.DirectoryChange{Set: entries(spec, first[1])}, []string{"10.0.0.1:80"}, nil},
		"all gone":           {schema.DirectoryChange{Removed: []string{"tasks/ana/web/0"}}, []string{"10.0.0.1:80", "10.0.0.2:80"}, nil},
		"moved":              {schema.DirectoryChange{Set: entries(spec, task(0, "m1", "10.0.1.9", http), first[1])}, []string{"10.0.0.1:80"}, nil},
		"another port":       {schema.DirectoryChange{Set: entries(spec, task(0, "m0", "10.0.0.1", schema.Port{Name: "http", Port: 81}), first[1])}, []string{"10.0.0.1:80"}, nil},
		"service gone":       {schema.DirectoryChange{Removed: []string{"service/ana/front"}}, nil, nil},
		"service and task":   {schema.DirectoryChange{Removed: []string{"service/ana/front", "tasks/ana/web/0"}}, []string{"10.0.0.1:80", "10.0.0.2:80"}, nil},
		"all is sent again":  {schema.DirectoryChange{Whole: true, Set: entries(spec, first...)}, nil, nil},
		"and one is missing": {schema.DirectoryChange{Whole: true, Set: entries(spec, first[0])}, []string{"10.0.0.2:80"}, nil},
	} {
		d, v := naming.New(), services.NewView("m0")
		d.Apply(schema.DirectoryChange{Whole: true, Set: entries(spec, first...)})
		v.Turn(d.Snapshot(), nil)
		touched := d.Apply(c.change)
		turn := v.Turn(d.Snapshot(), touched.Services)
		got := []string(nil)
		for _, at := range slices.SortedFunc(maps.Keys(turn.Ended), netip.AddrPort.Compare) {
			got = append(got, at.String())
		}
		if diff := cmp.Diff(c.ended, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		left := []string(nil)
		for _, at := range slices.SortedFunc(maps.Keys(turn.Left), netip.AddrPort.Compare) {
			left = append(left, at.String())
		}
		if diff := cmp.Diff(append(slices.Clone(c.ended), c.left...), left); diff != "" {
			t.Errorf("%s: left (-want +got):\n%s", name, diff)
		}
	}
}
