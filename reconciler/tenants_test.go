package reconciler_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/schema"
)

// TestOwnership: what a directory may not declare is one diagnostic for each
// mistake, which says who owns what, and what to do where.
func TestOwnership(t *testing.T) {
	t.Parallel()
	job := func(user, name string, p schema.Priority) schema.Job { return at(service(user, name, 1, "v"), p) }
	root := pkg(".",
		schema.Cell{Name: "c", Quota: "off"},
		schema.Tenant{Name: "a", Paths: []string{"teams/a"}, Users: []string{"a", "a-batch"}, Capabilities: []string{schema.CapabilityAdmin}},
		schema.Tenant{Name: "obs", Paths: []string{"obs"}, Users: []string{"obs"}, Capabilities: []string{schema.CapabilityMonitoring}},
		schema.Tenant{Name: "nobody", Paths: []string{"lib"}},
		schema.NamedPriority{Name: "pager", Value: 350},
		schema.Cell{Name: "local", Quota: "off"},
	)
	elsewhere := func(name string) schema.Job {
		j := job("a", name, 0)
		j.Cell = "loacl"
		return j
	}
	mistake := func(path string, line int, field, message, expected, hint string) schema.Diagnostic {
		return schema.Diagnostic{
			Severity: schema.Error, Rule: schema.RuleOwnership, Position: schema.Position{Path: path, Line: line, Column: 1},
			Field: field, Message: message, Expected: expected, Hint: hint,
		}
	}
	of := func(r schema.Rule, d schema.Diagnostic) schema.Diagnostic {
		d.Rule = r
		return d
	}
	tests := []struct {
		name string
		p    *schema.Package
		want []schema.Diagnostic
	}{
		{"in its place", pkg("teams/a/x", job("a", "web", 200), job("a-batch", "sum", 100), newQuota("q", "a", 1)), nil},
		{"monitoring where it is granted", pkg("obs/prom", job("obs", "prom", 300), job("obs", "alerts", 399)), nil},
		{
			"monitoring where it is not granted, twice",
			pkg("teams/a/x", job("a", "web", 299), job("a", "prom", 300), job("a", "alerts", 310)),
			[]schema.Diagnostic{mistake("teams/a/x/x.cue", 2, "job.prom.priority",
				`directory teams/a/x belongs to tenant "a" by its path teams/a, and the tenant may not have jobs at band monitoring (the same goes for job.alerts)`,
				"a priority below 300, or a tenant with the capability monitoring",
				`take priority: "production", or have the platform team grant it: capabilities: ["admin", "monitoring"] at tenant "a" (x.cue:2:1)`)},
		},
		{
			"a name of a priority is what it stands for",
			pkg("teams/a/x", namedJob{job("a", "web", 0), "pager"}),
			[]schema.Diagnostic{{
				Severity: schema.Error, Rule: schema.RuleOwnership, Position: schema.Position{Path: "teams/a/x/x.cue", Line: 1, Column: 40}, Field: "job.web.priority",
				Message:  `priority "pager" is 350: directory teams/a/x belongs to tenant "a" by its path teams/a, and the tenant may not have jobs at band monitoring`,
				Expected: "a priority below 300, or a tenant with the capability monitoring",
				Hint:     `take priority: "production", or have the platform team grant it: capabilities: ["admin", "monitoring"] at tenant "a" (x.cue:2:1)`,
			}},
		},
		{
			"two mistakes in one job",
			pkg("teams/a/x", job("shop", "web", 300)),
			[]schema.Diagnostic{
				mistake("teams/a/x/x.cue", 1, "job.web.priority",
					`directory teams/a/x belongs to tenant "a" by its path teams/a, and the tenant may not have jobs at band monitoring`,
					"a priority below 300, or a tenant with the capability monitoring",
					`take priority: "production", or have the platform team grant it: capabilities: ["admin", "monitoring"] at tenant "a" (x.cue:2:1)`),
				mistake("teams/a/x/x.cue", 1, "job.web.user",
					`directory teams/a/x belongs to tenant "a", whose jobs may not name the user "shop"`, "one of a, a-batch",
					`correct the user, or add "shop" to the users of tenant "a" (x.cue:2:1)`),
			},
		},
		{
			"a wrong user in many jobs is one mistake, another is another",
			pkg("obs", job("b", "v", 0), job("b", "w", 0), job("b", "x", 0), job("b", "y", 0), job("b", "z", 0), job("d", "z", 0)),
			[]schema.Diagnostic{
				mistake("obs/x.cue", 1, "job.v.user",
					`directory obs belongs to tenant "obs", whose jobs may not name the user "b" (the same goes for job.w, job.x, job.y and 1 more)`, "one of obs",
					`correct the user, or add "b" to the users of tenant "obs" (x.cue:3:1)`),
				mistake("obs/x.cue", 6, "job.z.user",
					`directory obs belongs to tenant "obs", whose jobs may not name the user "d"`, "one of obs",
					`correct the user, or add "d" to the users of tenant "obs" (x.cue:3:1)`),
			},
		},
		{
			"a misspelt user, a misspelt cell in two jobs",
			pkg("teams/a/x", job("a-bacth", "web", 0), elsewhere("z1"), elsewhere("z2")),
			[]schema.Diagnostic{
				mistake("teams/a/x/x.cue", 1, "job.web.user",
					`directory teams/a/x belongs to tenant "a", whose jobs may not name the user "a-bacth"`, "one of a, a-batch",
					`did you mean "a-batch"? Else add "a-bacth" to the users of tenant "a" (x.cue:2:1)`),
				of(schema.RuleUndefined, mistake("teams/a/x/x.cue", 2, "job.z1.cell", `no cell "loacl" is declared (the same goes for job.z2)`, "one of c, local",
					`did you mean "local"? Else declare the cell in cells/`)),
			},
		},
		{
			"a tenant without users",
			pkg("lib", job("a", "web", 0)),
			[]schema.Diagnostic{mistake("lib/x.cue", 1, "job.web.user",
				`directory lib belongs to tenant "nobody", whose jobs may not name the user "a"`, "a user of the tenant, which has none",
				`correct the user, or add "a" to the users of tenant "nobody" (x.cue:4:1)`)},
		},
		{
			"a directory of nobody, at monitoring",
			pkg("x", job("obs", "web", 300), job("obs", "api", 0)),
			[]schema.Diagnostic{mistake("x/x.cue", 1, "job.web",
				"directory x belongs to no tenant, so no job may be declared in it (the same goes for job.api)", "a directory below the paths of a tenant",
				`add "x" to the paths of tenant "obs" (x.cue:3:1), which has the user "obs", or move the file`)},
		},
		{
			"kinds of the platform team",
			pkg("obs", newQuota("q", "a", 1), tenant("x", "x"), newQuota("r", "a", 1)),
			[]schema.Diagnostic{mistake("obs/x.cue", 1, "quota.q",
				"directory obs may not declare a quota (the same goes for tenant.x, quota.r)",
				"the root package, cells/, or a path of a tenant with the capability admin", "move it there, where its owners see it")},
		},
		{
			"a path that is another's",
			pkg("teams/a/x", tenant("thief", "obs", "obs/sub", "lib")),
			[]schema.Diagnostic{
				mistake("teams/a/x/x.cue", 1, "tenant.thief.paths", `path lib is claimed by tenant "nobody" (x.cue:4:1), too`,
					"each path at one tenant", "remove it from one of them; a longer path may be another tenant's"),
				mistake("teams/a/x/x.cue", 1, "tenant.thief.paths", `path obs is claimed by tenant "obs" (x.cue:3:1), too`,
					"each path at one tenant", "remove it from one of them; a longer path may be another tenant's"),
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, got := reconciler.Check(compiled("", good(root), good(tt.p)), epoch)
			got = slices.DeleteFunc(got, func(d schema.Diagnostic) bool { return d.Severity == schema.Warning }) // of paths without packages
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestMonitoringWithoutTenants: a repository without tenants allows everything,
// with one warning.
func TestMonitoringWithoutTenants(t *testing.T) {
	t.Parallel()
	_, got := reconciler.Check(compiled("", good(pkg(".", schema.Cell{Name: "c", Quota: "off"})), good(pkg("x", at(service("a", "web", 1, "v"), 300)))), epoch)
	if len(got) != 1 || got[0].Severity != schema.Warning {
		t.Errorf("%v, want one warning", got)
	}
}

// TestMonitoringIsTakenAway: a tenant that loses the capability keeps what runs,
// and its directory is stale; a priority that is moved into the band under a job's name does not take the
// job there.
func TestMonitoringIsTakenAway(t *testing.T) {
	t.Parallel()
	c := newCell()
	owner := schema.Tenant{Name: "obs", Paths: []string{"obs"}, Users: []string{"obs"}, Capabilities: []string{schema.CapabilityMonitoring}}
	pager := schema.NamedPriority{Name: "pager", Value: 250}
	jobs := good(pkg("obs", at(service("obs", "prom", 1, "v"), 300), namedJob{service("obs", "web", 1, "v"), "pager"}))
	root := func() schema.CompiledPackage {
		return good(pkg(".", schema.Cell{Name: "c", Quota: "off"}, owner, pager))
	}
	c.commit(compiled("1", root(), jobs))
	c.join("m1", 4, 8)
	c.step()
	owner.Capabilities, pager.Value = nil, 350
	c.commit(compiled("2", root(), jobs))
	c.step()
	status := c.status()
	if len(status.Stale) != 1 || len(status.Rejected) != 1 || len(status.Jobs) != 2 {
		t.Fatalf("stale %v, rejected %v, %d jobs", status.Stale, status.Rejected, len(status.Jobs))
	}
	if p, w := status.Jobs[0].Priority, status.Jobs[1].Priority; p != 300 || w != 250 {
		t.Errorf("priorities %d and %d, want 300 and 250", p, w)
	}
}
