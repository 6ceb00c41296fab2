package nodeagent_test

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// secretive is an assignment whose task needs secrets, by their names the versions.
func secretive(job string, generation uint64, of map[string]string, on schema.OnChange) schema.Assignment {
	a := assignment(job, 0, generation, schema.Service)
	j := *a.Job
	j.Task.Secrets = map[string]schema.TaskSecret{}
	for name, version := range of {
		j.Task.Secrets[name] = schema.TaskSecret{OnChange: on, Sealed: &schema.SealedSecret{Version: version}}
	}
	a.Job, a.Data = &j, schema.DigestOf(&j)
	return a
}

// send gives the agent a view with secrets.
func (d *driver) send(t *testing.T, version uint64, secrets map[string]schema.MachineSecret, list ...schema.Assignment) {
	t.Helper()
	view := &schema.View{Epoch: 1, Version: version, Assignments: list, Secrets: secrets}
	if err := errors.Join(d.agent.Welcome(1, d.now), d.agent.Assign(view, d.now)); err != nil {
		t.Fatal(err)
	}
}

func (d *driver) saysOf(t *testing.T, want string) {
	t.Helper()
	for _, s := range d.turn.Report.Tasks {
		if want == "" && s.Note == "" || want != "" && strings.Contains(s.Note, want) {
			continue
		}
		t.Errorf("reported %+v, want the note %q", s, want)
	}
}

// TestSecretsComeFirst: nothing is started whose secrets are not all here, and the report
// says which; the start has those of its job and no others, and so has one by an agent that
// comes after, from what is on disk.
func TestSecretsComeFirst(t *testing.T) {
	t.Parallel()
	d := newDriver(nodeagent.Found{})
	web := secretive("web", 1, map[string]string{"a": "v1", "b": "v2"}, "")
	has := map[string]schema.MachineSecret{"v1": {Sealed: "one"}, "v9": {Sealed: "another's"}}
	d.send(t, 1, has, web)
	d.want(t, "one is missing", "log confirmed", "write view", "write view")
	d.saysOf(t, "its secret b is not here: the master has not sent it")
	has = maps.Clone(has)
	has["v2"] = schema.MachineSecret{Refused: "sealed for others"}
	d.send(t, 2, has, web)
	d.want(t, "one was refused", "write view")
	d.saysOf(t, "its secret b is not here: sealed for others")
	has = maps.Clone(has)
	has["v2"] = schema.MachineSecret{Sealed: "two"}
	d.send(t, 3, has, web)
	d.want(t, "all are here", "write view", "start u/web/0")
	d.saysOf(t, "")
	want := map[string]string{"v1": "one", "v2": "two"}
	if got := d.acted.Assignment.Secrets; !maps.Equal(got, want) {
		t.Errorf("started with %v, want %v", got, want)
	}
	b, err := json.Marshal(d.agent.Memory().View)
	if err != nil {
		t.Fatal(err)
	}
	var view schema.View
	if err := json.Unmarshal(b, &view); err != nil {
		t.Fatal(err)
	}
	next := newDriver(nodeagent.Found{Memory: nodeagent.Memory{Epoch: 1, View: &view}})
	next.now = next.now.Add(time.Hour) // a master could have said that it is to run elsewhere
	next.want(t, "a new agent, without a master", "start u/web/0")
	if got := next.acted.Assignment.Secrets; !maps.Equal(got, want) {
		t.Errorf("started again with %v, want %v", got, want)
	}
}

// TestSecretRenewed: a running task gets another version of a secret when that is here, and
// not before; the report says what it waits for.
func TestSecretRenewed(t *testing.T) {
	t.Parallel()
	d := newDriver(nodeagent.Found{})
	of := func(version string) schema.Assignment {
		return secretive("web", 1, map[string]string{"a": version}, schema.ChangeSignal)
	}
	first := of("v1")
	d.given = nodeagent.GivenOf(&first.Job.Task)
	d.send(t, 1, map[string]schema.MachineSecret{"v1": {Sealed: "one"}}, first)
	d.want(t, "the first", "log confirmed", "write view", "write view", "start u/web/0")
	d.want(t, "it runs")
	d.send(t, 2, nil, of("v2"))
	d.want(t, "the next is not here", "write view")
	d.saysOf(t, schema.NoteNext+"its secret a is not here")
	d.send(t, 3, map[string]schema.MachineSecret{"v2": {Sealed: "two"}}, of("v2"))
	d.want(t, "the next is here", "write view", "renew u/web/0", "write given")
	if got := d.acted; got.Assignment.Secrets["v2"] != "two" || strings.Join(got.Renewal.Changed, " ") != "secrets/a" || strings.Join(got.Renewal.Signals, " ") != "SIGHUP" {
		t.Errorf("renewed with %v, %+v", got.Assignment.Secrets, got.Renewal)
	}
	d.want(t, "it has it")
	d.saysOf(t, "")
}
