package reconciler_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/schema"
)

// TestDrainNear drains a rack whose tasks have to be near each other, while machines take their time to stop
// them and masters die between two documents. In the end all have left it, whatever came in between.
func TestDrainNear(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newCell()
		for i := range 6 {
			c.joinRack(fmt.Sprintf("m%d", i), fmt.Sprintf("r%d", i%2), 4, 8)
		}
		objects := nearCell(t)
		c.commit(compiled("c1", good(pkg(".", objects...))))
		pass := func(turns int) {
			for range turns {
				c.now = c.now.Add(time.Second)
				c.exchange()
				c.step()
			}
		}
		pass(6)
		for name, r := range c.records() {
			if r.Machine == "" {
				t.Fatalf("%s has no machine before anything is drained", name)
			}
		}
		drain := schema.Machine{Name: "rack", Cell: "c", Match: "rack=" + rapid.SampledFrom([]string{"r0", "r1"}).Draw(t, "rack"), Drain: &schema.Drain{AtOnce: rapid.IntRange(1, 3).Draw(t, "atOnce"), AtDeadline: schema.DeadlineBudget}}
		c.commit(compiled("c2", good(pkg(".", append(objects, drain)...))))
		for range rapid.IntRange(0, 6).Draw(t, "actions") {
			a := c.agent(fmt.Sprintf("m%d", rapid.IntRange(0, 5).Draw(t, "agent")))
			switch rapid.SampledFrom([]string{"hang", "obey", "crash"}).Draw(t, "action") {
			case "hang":
				a.hangs = true
			case "obey":
				a.hangs = false
			case "crash":
				c.cutShort(min(rapid.IntRange(0, 3).Draw(t, "documents"), len(control.Step(c.input()).Writes)))
			}
			pass(rapid.IntRange(0, 3).Draw(t, "turns"))
		}
		for i := range 6 {
			c.agent(fmt.Sprintf("m%d", i)).hangs = false
		}
		pass(60)
		for name, r := range c.records() {
			if r.Machine == "" || c.agent(r.Machine).info.Attributes["rack"] == strings.TrimPrefix(drain.Match, "rack=") {
				t.Fatalf("%s is on %q, and %s is drained: %v", name, r.Machine, drain.Match, c.last.Draining)
			}
		}
	})
}

// nearCell returns jobs for which half of the cell is enough.
func nearCell(t *rapid.T) []any {
	out := []any{schema.Cell{Name: "c", Quota: "off"}}
	for _, name := range []string{"g", "h", "i"}[:rapid.IntRange(1, 3).Draw(t, "jobs")] {
		tasks := rapid.IntRange(1, 3).Draw(t, "tasks")
		j := service("u", name, tasks, "v")
		j.Task.Resources.CPUMilli, j.Task.Resources.Ports = 1000, nil
		fields := []string{"health=0", fmt.Sprintf("priority=%d", 200+10*rapid.IntRange(0, 1).Draw(t, "priority"))}
		if near := rapid.SampledFrom([]string{"", "g", name}).Draw(t, "near"); near != "" {
			fields = append(fields, fmt.Sprintf(`affinity=[{"selector":"muster/job=%s","by":"rack"}]`, near))
		}
		if rapid.Bool().Draw(t, "together") {
			fields = append(fields, "together=true")
		} else {
			fields = append(fields, fmt.Sprintf(`disruption={"maxDown":%d}`, tasks))
		}
		if err := set(&j, fields); err != nil {
			t.Fatal(err)
		}
		out = append(out, j)
	}
	return out
}

// TestDrainNearIsBounded: more tasks than are moved in one step stay, and the drain says why.
func TestDrainNearIsBounded(t *testing.T) {
	t.Parallel()
	c := newCell()
	for i := range 4 {
		c.joinRack(fmt.Sprintf("m%d", i), fmt.Sprintf("r%d", i/2), 16, 64)
	}
	j := service("u", "g", 49, "v")
	j.Task.Resources.CPUMilli, j.Task.Resources.Ports = 100, nil
	if err := set(&j, []string{`affinity=[{"selector":"muster/job=g","by":"rack"}]`, `disruption={"maxDown":49}`, "health=0"}); err != nil {
		t.Fatal(err)
	}
	objects := []any{schema.Cell{Name: "c", Quota: "off"}, j}
	play := func(commit string, objects []any) {
		c.commit(compiled(commit, good(pkg(".", objects...))))
		for range 5 {
			c.now = c.now.Add(time.Second)
			c.exchange()
			c.step()
		}
	}
	play("c1", objects)
	rack := c.agent(c.records()["u/g/0"].Machine).info.Attributes["rack"]
	play("c2", append(objects, schema.Machine{Name: "rack", Cell: "c", Match: "rack=" + rack, Drain: &schema.Drain{AtOnce: 2, AtDeadline: schema.DeadlineBudget}}))
	const want = "more (affinity by rack), and no more than 48 tasks are moved in one step"
	if said := c.last.Draining[c.records()["u/g/0"].Machine]; said == nil || !strings.Contains(said.String(), want) {
		t.Fatalf("the drain says %v, and not %q", said, want)
	}
}
