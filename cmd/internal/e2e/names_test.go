package e2e_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/schema"
)

// TestHostileNames: jobs, users and services whose names are as long as they can be, numbers, words of DNS, or the same when
// they are put together are each found by their own name, and answer there; nothing is found by another one.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n-4", 20) + "end" // 63 bytes
	g := newGridAt(t, place{machines: 2, network: `range: "10.64.0.0/16", services: "10.80.0.0/24"`, name: long})
	files := map[string][]byte{}
	for i, of := range [][2]string{{"a-b", "c"}, {"a", "b-c"}, {"web", "svc"}, {"0", "svc"}, {"svc", "svc"}, {"0", "0"}, {"crew", "front"}, {"front", "crew"}, {long, long}} {
		job := g.job(answering{name: of[0], version: of[1], tasks: 1, more: `task: isolation: network: "own"`})
		job = strings.ReplaceAll(job, `user: "crew"`, fmt.Sprintf("user: %q", of[1]))
		files[fmt.Sprintf("teams/t%d/t.cue", i)] = fmt.Appendf(nil, "package t\n\nimport \"%s/muster\"\n%s", module, job)
	}
	services := ""
	for _, of := range [][3]string{
		{"front", "crew", "tier=front"},
		{"web", "svc", "tier=web"},
		{"svc", "svc", "tier=svc"},
		{"0-0", "0", "tier=0"},
		{long, long, "tier=" + long},
		{"all", "svc", "muster/job notin (nothing)"},
		{"everybody", "crew", "muster/user notin (nobody)"},
	} {
		services += fmt.Sprintf("service: %q: muster.#Service & {user: %q, cell: %q, selector: %q, ports: http: port: 80}\n", of[0], of[1], g.name, of[2])
	}
	files["teams/services/s.cue"] = fmt.Appendf(nil, "package s\n\nimport \"%s/muster\"\n\n%s", module, services)
	s := g.converge(g.commit("hostile names", files))
	if s.Tasks[0].Address == "" {
		t.Skipf("NOT TESTED: needs networks of tasks: %v", s.Machines)
	}
	end := "." + g.name + ".muster.internal"
	for name, want := range map[string][]string{ // and who answers
		"0.a-b.c": {"a-b/0 c"}, "a-b.c": {"a-b/0 c"}, "A-b.C": {"a-b/0 c"}, `a\045b.c`: {"a-b/0 c"}, "0.a.b-c": {"a/0 b-c"}, "a.b-c": {"a/0 b-c"},
		"0.web.svc": {"web/0 svc"}, "web.svc": {"web/0 svc"}, "web.svc.svc": {"web/0 svc"},
		"0.0.svc": {"0/0 svc"}, "0.svc": {"0/0 svc"}, "0.svc.svc": {"svc/0 svc"}, "svc.svc": {"svc/0 svc"}, "svc.svc.svc": {"svc/0 svc"},
		"0.0.0": {"0/0 0"}, "0.0": {"0/0 0"}, "0-0.0.svc": {"0/0 0"},
		"crew.front": {"crew/0 front"}, "front.crew": {"front/0 crew"}, "front.crew.svc": {"front/0 crew"},
		long + "." + long: {long + "/0 " + long}, "0." + long + "." + long: {long + "/0 " + long}, long + "." + long + ".svc": {long + "/0 " + long},
		"all.svc.svc": {"0/0 svc", "svc/0 svc", "web/0 svc"}, "everybody.crew.svc": {"front/0 crew"},
	} {
		port := uint16(schema.FirstOwnPort)
		if labels := strings.Split(name, "."); labels[len(labels)-1] == "svc" && len(labels) == 3 && labels[0] != "0" {
			port = 80
		}
		g.answered("m1", name+end, port, want)
	}
	for _, name := range []string{
		"a-b.b-c", "a.c", "b.c", "a.b", "b-c", "0.a-b.b-c", "0.front.crew.svc", "1.front.crew", "00.front.crew", "0.web.svc.svc", "5.svc.svc", "front.svc", "front.front.svc",
		"nothing", "svc.front", `a\.b-c`, `0.a\.b-c`, `front.crew\.svc`, `\000.b-c`, `\255\254.b-c`, `\195\164.b-c`, "xn--4ca.b-c", "_http.front.crew", "a_b.c", "*.c", strings.Repeat("x.", 40) + "c",
	} {
		var at netip.Addr
		var err error
		g.must(g.inside("m2", func() { at, err = g.lookup(t.Context(), name+end, "m2") }))
		if err == nil || !strings.Contains(err.Error(), "NXDOMAIN") && !(name == "b-c" && strings.Contains(err.Error(), "NOERROR")) { // a user is a name with others below it
			t.Errorf("%s is at %s, %v: want no such name", name, at, err)
		}
	}
	for name := range files {
		files[name] = nil
	}
	g.converge(g.commit("nothing\n\nMuster-Allow-Prune: 100", files))
}

// answered waits until exactly those who should be answer at a name.
func (g *grid) answered(machine, name string, port uint16, want []string) {
	g.t.Helper()
	g.must(within(bound, func() error {
		by := map[string]bool{}
		var err error
		if failed := g.inside(machine, func() {
			for range 1 + 10*(len(want)-1) {
				var at netip.Addr
				var who string
				if at, err = g.lookup(g.t.Context(), name, machine); err != nil {
					return
				}
				if who, err = request(g.t.Context(), netip.AddrPortFrom(at, port)); err != nil {
					return
				}
				by[who] = true
			}
		}); failed != nil {
			return failed
		}
		if is := slices.Sorted(maps.Keys(by)); err != nil || !slices.Equal(is, want) {
			return fmt.Errorf("%s is answered by %q (%w), want %q", name, is, err, want)
		}
		return nil
	}))
}
