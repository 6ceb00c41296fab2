package nodeagent_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// TestSources: what is brought comes with what the master says of where it is: the logins of
// the users who need it, before that of all, and of nobody else; and when that has changed, what
// had failed is tried again at once.
func TestSources(t *testing.T) {
	t.Parallel()
	d := newDriver(nodeagent.Found{})
	const image = "r.example/x@sha256:aa"
	a := container("a", 1, image)
	user := a.Task.User
	login := func(user, secret, version string) schema.RegistryLogin {
		return schema.RegistryLogin{User: user, Secret: secret, Sealed: &schema.SealedSecret{Version: version}}
	}
	send := func(version uint64, own string) {
		t.Helper()
		v := &schema.View{
			Epoch: 1, Version: version, Assignments: []schema.Assignment{a},
			Secrets: map[string]schema.MachineSecret{"all": {Sealed: "sealed for all"}, "other": {Sealed: "another's"}, own: {Sealed: "sealed " + own}},
			Registries: []schema.Registry{
				{Name: "m.example", Logins: []schema.RegistryLogin{{Secret: "ops/mirror", Trouble: "no identity"}}},
				{Name: "r.example", Mirrors: []string{"m.example"}, Logins: []schema.RegistryLogin{login("", "ops/pull", "all"), login("other", "other/pull", "other"), login(user, user+"/pull", own), login("", "ops/gone", "gone")}},
			},
		}
		if err := d.agent.Assign(v, d.now); err != nil {
			t.Fatal(err)
		}
	}
	want := func(own string) {
		t.Helper()
		is := map[string]nodeagent.Sources{image: {
			{Name: "r.example", Mirrors: []string{"m.example"}, Logins: []nodeagent.Login{
				{Secret: user + "/pull", Sealed: "sealed " + own}, {Secret: "ops/pull", Sealed: "sealed for all"}, {Secret: "ops/gone", Trouble: "the master has not sent it"},
			}},
			{Name: "m.example", Logins: []nodeagent.Login{{Secret: "ops/mirror", Trouble: "no identity"}}},
		}}
		if diff := cmp.Diff(is, d.turn.From, cmpopts.IgnoreUnexported(nodeagent.Login{})); diff != "" {
			t.Errorf("to be brought (-want +got):\n%s", diff)
		}
	}
	send(1, "v1")
	d.want(t, "a view", "log confirmed", "write view")
	want("v1")
	for range 5 {
		d.agent.Brought(image, errors.New("not authorized"), time.Time{}, d.now)
		d.now = d.agent.Wake()
		d.want(t, "tried again")
	}
	d.agent.Brought(image, errors.New("not authorized"), time.Time{}, d.now)
	send(2, "v1")
	d.want(t, "the same login", "write view")
	if len(d.turn.Bring) > 0 {
		t.Errorf("brought with the same login, without a pause: %v", d.turn.Bring)
	}
	send(3, "v2")
	d.want(t, "another login", "write view")
	want("v2")
}
