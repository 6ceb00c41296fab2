package reconciler_test

import (
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// A machine is sent to those that hold something, at the address that they have in the cell; not to
// those that are silent.
func TestSources(t *testing.T) {
	t.Parallel()
	const content = schema.Digest("sha256:c")
	for _, c := range []struct{ address, shares, want string }{
		{"10.0.0.1", ":7423", "10.0.0.1:7423"},
		{"fd00::1", ":7423", "[fd00::1]:7423"},
		{"10.0.0.1", "10.9.0.1:7423", "10.9.0.1:7423"},
		{"", ":7423", ""},
		{"10.0.0.1", "", ""},
	} {
		info := schema.MachineInfo{Name: "a", ID: "id", Boot: "b", Address: c.address, Shares: c.shares}
		docs, joined := joins(t, info)
		m := leads(t, docs)
		w := model.SessionUpdate{
			Machine: "a", Epoch: joined, Resume: &schema.Connection{},
			Report: &schema.Report{Machine: info}, Content: &schema.ContentChange{Whole: true, Added: []schema.Digest{content}},
		}
		if err := m.UpdateSession(&w, epoch); err != nil {
			t.Fatal(err)
		}
		q := &schema.SourceQuestion{Machine: "b", Content: content}
		a := m.Sources(q, epoch)
		if got := len(a.Peers) == 1 && a.Peers[0] == (schema.SourcePeer{Machine: "a", Address: c.want, Holds: true}); got != (c.want != "") || a.Registry == got {
			t.Errorf("%+v: %+v", c, a)
		}
		if a := m.Sources(q, epoch.Add(time.Minute)); len(a.Peers) > 0 || !a.Registry {
			t.Errorf("%+v: it is silent: %+v", c, a)
		}
	}
}
