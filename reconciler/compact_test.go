package reconciler_test

import (
	"testing"

	"github.com/musterhq/muster/reconciler/compact"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// TestCompactKeepsRelations: work that is packed anew is near what it has to be near, tasks of
// system jobs among that, and apart from what it has to be apart from.
func TestCompactKeepsRelations(t *testing.T) {
	t.Parallel()
	c := newCell()
	var said []model.SavedMachine
	for _, name := range []string{"m1", "m2", "m3", "m4"} {
		c.join(name, 4, 8)
		report := c.agent(name).report()
		said = append(said, model.SavedMachine{Name: name, Report: &report})
	}
	agent := service("u", "agent", 0, "v")
	agent.Kind, agent.Labels = schema.System, map[string]string{"app": "agent"}
	web := service("u", "web", 2, "v")
	web.Labels = map[string]string{"app": "web"}
	web.Affinity = []schema.Affinity{{Selector: "app=agent", By: schema.AttributeMachine}}
	web.AntiAffinity = []schema.Affinity{{Selector: "app=web", By: schema.AttributeMachine}}
	c.commit(compiled("c1", good(pkg(".", schema.Cell{Name: "c", Quota: "off"}, agent, web))))
	c.step()
	r, err := compact.Compact(compact.Config{State: c.state, Machines: said, Now: c.now, Seeds: 2})
	if err != nil {
		t.Fatal(err)
	}
	if r.Value != 2 || r.Clones != 1 {
		t.Errorf("the work is on %d machines of %d times the cell: want 2 of it, one for each task", r.Value, r.Clones)
	}
}
