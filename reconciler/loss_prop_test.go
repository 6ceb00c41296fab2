package reconciler_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// lossWorld is a cell in which machines come and go, and what an observer knows
// of them who only watches.
type lossWorld struct {
	*cell
	racks map[string]string // by machine
	quiet map[string]time.Time
	gone  map[string]bool
	spent map[string][]time.Time // tasks rescheduled, by rack
}

const (
	lossBurst   = 2
	lossEvery   = 10 * time.Second
	lossPercent = 50
)

// TestLossProperties lets machines fall silent and return, masters die and
// machines be declared gone, and holds each task that is given to another machine
// against the documented rules: no rack gives away more than its bucket
// has, nothing is given away where more than the share is silent, and what must
// never run twice only when its machine is declared gone.
func TestLossProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := &lossWorld{cell: newCell(), racks: map[string]string{}, quiet: map[string]time.Time{}, gone: map[string]bool{}, spent: map[string][]time.Time{}}
		w.declare(t)
		for i := range 8 {
			name := fmt.Sprintf("m%d", i)
			w.join(name, 4, 8)
			w.racks[name] = fmt.Sprintf("r%d", i/4)
			w.agent(name).info.Attributes = map[string]string{"rack": w.racks[name]}
			w.join(name, 4, 8)
		}
		w.pass(t, 3)
		for range rapid.IntRange(1, 12).Draw(t, "turns") {
			name := fmt.Sprintf("m%d", rapid.IntRange(0, 7).Draw(t, "machine"))
			switch rapid.SampledFrom([]string{"silent", "silent", "speak", "wait", "long", "crash", "gone"}).Draw(t, "action") {
			case "silent":
				if a := w.agent(name); !a.silent {
					a.silent, w.quiet[name] = true, w.now
				}
			case "speak":
				if a := w.agent(name); a.silent {
					w.join(name, 4, 8)
					a.silent = false
					delete(w.quiet, name)
				}
			case "long":
				w.pass(t, 70)
			case "crash":
				w.restart()
			case "gone":
				if w.agent(name).silent {
					w.gone[name] = true
					w.declare(t)
				}
			}
			w.pass(t, rapid.IntRange(1, 15).Draw(t, "seconds"))
		}
	})
}

// declare commits the cell's policy, its jobs, and the machines that are gone.
func (w *lossWorld) declare(t *rapid.T) {
	policy := schema.Cell{Name: "c", Quota: "off", Lost: &schema.LossPolicy{Domain: "rack", MaxPercent: lossPercent, TasksPerMinute: 6, Burst: lossBurst}}
	web, once := service("u", "web", 8, "v"), service("u", "once", 4, "v")
	for _, j := range []*schema.Job{&web, &once} {
		j.Task.Resources.CPUMilli = 100
	}
	once.Silence = &schema.Silence{NeverTwice: true}
	objects := []any{policy, web, once}
	for name := range w.gone {
		objects = append(objects, schema.Machine{Name: name, Cell: "c", Gone: true})
	}
	w.commit(compiled(fmt.Sprintf("c%d", w.now.Unix()), good(pkg(".", objects...))))
}

// pass lets seconds pass, and checks what is rescheduled in each.
func (w *lossWorld) pass(t *rapid.T, seconds int) {
	for range seconds {
		w.now = w.now.Add(time.Second)
		w.exchange()
		before := w.records(t)
		out := w.step()
		for _, e := range out.Events {
			if e.Kind == schema.EventLost {
				w.check(t, e, before)
			}
		}
	}
}

// records returns the machine of each task that has one.
func (w *lossWorld) records(t *rapid.T) map[string]string {
	out := map[string]string{}
	for key, doc := range w.docs {
		if !strings.HasPrefix(key, "chunk/") {
			continue
		}
		var c schema.Chunk
		if err := json.Unmarshal(doc, &c); err != nil {
			t.Fatal(err)
		}
		for i := range c.Tasks {
			out[c.Job.Task(c.Tasks[i].Index).Short()] = c.Tasks[i].Machine
		}
	}
	return out
}

// check holds one task that is rescheduled against the rules.
func (w *lossWorld) check(t *rapid.T, e schema.Event, before map[string]string) {
	machine := before[e.Task]
	rack := w.racks[machine]
	if machine != e.Machine || !w.agent(machine).silent {
		t.Fatalf("%s is rescheduled, and is on %s, which speaks", e.Task, machine)
	}
	if strings.HasPrefix(e.Task, "u/once/") && !w.gone[machine] {
		t.Fatalf("%s must never run twice, and is rescheduled", e.Task)
	}
	if w.now.Sub(w.quiet[machine]) < model.DefaultLostAfter && !w.gone[machine] {
		t.Fatalf("%s is rescheduled after %s of silence", e.Task, w.now.Sub(w.quiet[machine]))
	}
	silent := 0
	for name := range w.quiet {
		if w.racks[name] == rack && !w.gone[name] {
			silent++
		}
	}
	// Machines that were given up long ago do not count, so only what is silent
	// since a short time together is held against the share.
	if late := w.lately(rack); late > 2 && silent == late && !w.gone[machine] {
		t.Fatalf("%s is rescheduled, and %d of 4 machines of its rack are silent at once", e.Task, silent)
	}
	w.spent[rack] = append(w.spent[rack], w.now)
	for i := range w.spent[rack] { // in any time no more than the bucket has
		span := w.now.Sub(w.spent[rack][i])
		if n := len(w.spent[rack]) - i; n > lossBurst+int(span/lossEvery) {
			t.Fatalf("%d tasks of rack %s were rescheduled within %s", n, rack, span)
		}
	}
}

// lately counts the machines of a rack that fell silent within the last minutes,
// and long enough ago to be noticed.
func (w *lossWorld) lately(rack string) int {
	n := 0
	for name, since := range w.quiet {
		if w.racks[name] == rack && !w.gone[name] && w.now.Sub(since) < 9*time.Minute && w.now.Sub(since) > 12*time.Second {
			n++
		}
	}
	return n
}
