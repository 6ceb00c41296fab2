package intent

import (
	"testing"

	"github.com/musterhq/muster/schema"
)

// A port of a service that leads to none of the jobs that it picks is reported where its target is; one that leads to some of
// them is not, nor are those of a service that picks none with ports.
func TestUnreached(t *testing.T) {
	t.Parallel()
	job := func(user, name string, ports ...string) schema.Job {
		j := schema.Job{Cell: "c", User: user, Name: name, Labels: map[string]string{"app": "store"}}
		j.Task.Resources.Ports = ports
		return j
	}
	service := func(name, selector string, ports map[string]schema.ServicePort) schema.ServiceSpec {
		return schema.ServiceSpec{Cell: "c", User: "u", Name: name, Selector: selector, Ports: ports}
	}
	p := &schema.Package{Origins: map[schema.ObjectKey]schema.Position{}}
	p.Objects.Jobs = []schema.Job{job("u", "a", "sql"), job("u", "b"), job("v", "d", "pgsql")}
	p.Objects.Services = []schema.ServiceSpec{
		service("wrong", "app=store", map[string]schema.ServicePort{"db": {Port: 5432, Target: "pgsql"}, "sql": {Port: 1}}),
		service("right", "muster/job in (a,b)", map[string]schema.ServicePort{"db": {Port: 5432, Target: "sql"}}),
		service("none", "app=other", map[string]schema.ServicePort{"db": {Port: 5432}}),
	}
	for i := range p.Objects.Services {
		key := schema.ObjectKey{Kind: schema.KindService, Name: p.Objects.Services[i].ID()}
		p.Origins[key] = schema.Position{Path: "u/x.cue", Line: i + 1, Column: 1}
		p.SetPlace(key, "ports.db.target", schema.Position{Path: "u/x.cue", Line: i + 1, Column: 40})
	}
	ds := Unreached([]*schema.Package{p}, &p.Objects)
	if len(ds) != 1 {
		t.Fatalf("%d diagnostics, want 1: %v", len(ds), ds)
	}
	const want = `leads to port "pgsql", which no job has that the selector "app=store" picks: nothing is sent to them`
	if d := ds[0]; d.Message != want || d.Position.Column != 40 || d.Field != "service.wrong.ports.db" || d.Expected != "one of sql" || d.Severity != schema.Warning {
		t.Errorf("got %+v, want %s", d, want)
	}
}
