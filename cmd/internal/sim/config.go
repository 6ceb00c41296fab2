package sim

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// allPrune is more tasks than any world has: whatever its commits remove is meant.
const allPrune = 1 << 20

// compiled is what the compiler would make of packages by directory.
func compiled(commit string, packages map[string]*schema.Package) schema.Compiled {
	c := schema.Compiled{Commit: commit, Trailers: schema.Trailers{AllowPrune: allPrune}}
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		p := schema.CompiledPackage{Dir: dir, Package: packages[dir]}
		if p.Package == nil {
			p.Diagnostics = []schema.Diagnostic{{
				Severity: schema.Error, Rule: schema.RuleSyntax, Position: schema.Position{Path: dir + "/jobs.cue", Line: 3, Column: 1},
				Message: "expected label or ':'", Hint: "check the syntax",
			}}
		} else {
			p.Digest = schema.DigestOf(p.Package)
		}
		c.Packages = append(c.Packages, p)
	}
	return c
}

// Root is a root package with a tenant, and a quota of tasks at production, for
// each user; a user owns teams/USER.
func Root(tasks int, users ...string) *schema.Package {
	p := &schema.Package{Dir: ".", Origins: map[schema.ObjectKey]schema.Position{}}
	p.Objects.Cells = []schema.Cell{{Name: cellName, Quota: "on", Network: &schema.CellNetwork{Range: netip.MustParsePrefix("10.64.0.0/20"), Mode: schema.ModeRoutes}}}
	p.Origins[schema.ObjectKey{Kind: schema.KindCell, Name: cellName}] = schema.Position{Path: "cell.cue", Line: 1, Column: 1}
	for i, u := range users {
		p.Objects.Tenants = append(p.Objects.Tenants, schema.Tenant{Name: u, Paths: []string{"teams/" + u}, Users: []string{u}, NonPreemptibleTasks: protectedTasks})
		p.Objects.Quotas = append(p.Objects.Quotas, schema.Quota{
			Name: u + "-production", User: u, Cell: cellName, Band: schema.BandProduction,
			Resources: schema.Resources{CPUMilli: 9_000, RAMBytes: 20 << 30, DiskBytes: 100 << 30}, Tasks: tasks,
		})
		p.Origins[schema.ObjectKey{Kind: schema.KindTenant, Name: u}] = schema.Position{Path: "tenants.cue", Line: i + 1, Column: 1}
		p.Origins[schema.ObjectKey{Kind: schema.KindQuota, Name: u + "-production"}] = schema.Position{Path: "quotas.cue", Line: i + 1, Column: 1}
	}
	return p
}

// Team is the package of a user's directory with the given jobs.
func Team(user string, jobs ...schema.Job) *schema.Package {
	p := &schema.Package{Dir: "teams/" + user, Origins: map[schema.ObjectKey]schema.Position{}}
	for i, j := range jobs {
		j.User, j.Cell = user, cellName
		p.Objects.Jobs = append(p.Objects.Jobs, j)
		p.Origins[schema.ObjectKey{Kind: schema.KindJob, Name: j.ID().String()}] = schema.Position{Path: p.Dir + "/jobs.cue", Line: i + 1, Column: 1}
	}
	return p
}

// Service is a service at production with one argument and one port.
func Service(name string, tasks int, argument string) schema.Job {
	return schema.Job{
		Name: name, Kind: schema.Service, Priority: 200, Tasks: tasks,
		Task: schema.TaskSpec{
			Process:      schema.Process{Command: []string{"serve", argument}},
			Resources:    schema.TaskResources{Resources: schema.Resources{CPUMilli: 100, RAMBytes: 64 << 20, DiskBytes: 1 << 20}, Ports: []string{"http"}},
			GraceSeconds: 5,
			Health: &schema.Health{
				HTTP: &schema.HTTPCheck{Port: "http", Path: "/"}, StartSeconds: 2, IntervalSeconds: 1, TimeoutSeconds: 1, Failures: 3, Successes: 1,
			},
		},
		Update: schema.UpdatePolicy{MaxParallel: 2},
	}
}

// Heavy is a service of which a machine has room for two or three tasks.
func Heavy(name string, tasks int, priority schema.Priority) schema.Job {
	j := Service(name, tasks, "heavy")
	j.Priority, j.Task.Resources.CPUMilli, j.Task.Health = priority, 1270, nil
	j.Task.Resources.Devices = map[string]schema.DeviceAsk{"gpu": {Count: 1, Milli: 600}}
	return j
}

// System is a system job of band free: its quota would grow with the machines.
func System(name, argument string) schema.Job {
	j := Service(name, 0, argument)
	j.Kind, j.Priority, j.Update.MaxParallel = schema.System, 0, 1
	return j
}

// Batch is a batch job of band free.
func Batch(name string, tasks int) schema.Job {
	return schema.Job{
		Name: name, Kind: schema.Batch, Tasks: tasks,
		Task: schema.TaskSpec{
			Process:   schema.Process{Command: []string{"count"}},
			Resources: schema.TaskResources{Resources: schema.Resources{CPUMilli: 100, RAMBytes: 64 << 20, DiskBytes: 1 << 20}},
		},
		Update: schema.UpdatePolicy{MaxParallel: 1},
	}
}

// Pair is an alloc set at production, of which a machine has room for three.
func Pair(name string, allocs int, cpuMilli int64) schema.AllocSet {
	return schema.AllocSet{
		Name: name, Priority: 200, Allocs: allocs, Resources: schema.Resources{CPUMilli: cpuMilli, RAMBytes: 512 << 20, DiskBytes: 1 << 30},
		Update: schema.AllocUpdate{MaxParallel: 1},
	}
}

// Within adds an alloc set to the package of a user's directory, and jobs that
// run in it.
func Within(p *schema.Package, set schema.AllocSet, jobs ...schema.Job) {
	set.User, set.Cell = strings.TrimPrefix(p.Dir, "teams/"), cellName
	to := schema.ObjectKey{Kind: schema.KindAllocSet, Name: set.ID().String()}
	p.Objects.AllocSets = append(p.Objects.AllocSets, set)
	p.Origins[to] = schema.Position{Path: p.Dir + "/allocs.cue", Line: 1, Column: 1}
	for i, j := range jobs {
		j.User, j.Cell, j.AllocSet, j.Priority = set.User, set.Cell, set.Name, schema.PriorityNamed
		from := schema.ObjectKey{Kind: schema.KindJob, Name: j.ID().String()}
		p.Objects.Jobs = append(p.Objects.Jobs, j)
		p.Origins[from] = schema.Position{Path: p.Dir + "/allocs.cue", Line: i + 2, Column: 1}
		p.References = append(p.References, schema.Reference{From: from, Field: "allocset", To: to, At: p.Origins[from]})
	}
}
