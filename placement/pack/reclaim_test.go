package pack

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// TestReclaim: what production work is estimated not to use is room for other work, and for
// none of production.
func TestReclaim(t *testing.T) {
	t.Parallel()
	cell := func(second schema.Priority) Cell {
		c := uniform(20, 10, 20, 8)
		c.Held = nil
		for i := range c.Asks {
			if c.Asks[i].Priority = 200; i >= 10 {
				c.Asks[i].Priority = second
				c.Asks[i].Name.Job = "batch"
			}
			c.Reserved = append(c.Reserved, schema.Resources{CPUMilli: 2000})
		}
		return c
	}
	for name, tc := range map[string]struct {
		c    Cell
		want int
	}{
		"batch in what production does not use":  {cell(100), 10},
		"production in what others reserve":      {cell(210), 20},
		"batch where nothing is estimated":       {Cell{Machines: cell(0).Machines, Asks: cell(100).Asks}, 20},
		"best effort in what best effort leaves": {Cell{Machines: cell(0).Machines, Asks: cell(0).Asks[10:], Reserved: cell(0).Reserved[10:]}, 5},
	} {
		r, err := Compact(tc.c, 3, placement.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Value != tc.want {
			t.Errorf("%s: %d machines, want %d", name, r.Value, tc.want)
		}
	}
	if on := Pack(cell(100), placement.Options{}); len(on) != 20 {
		t.Errorf("%d tasks have machines, want 20", len(on))
	}
}

// TestMoreColumns reads what a trace need not say.
func TestMoreColumns(t *testing.T) {
	t.Parallel()
	const head = "name,cpu_milli,memory_mib,user,qos,priority,cpu_used_milli,memory_used_mib,creation_time,scheduled_time,deletion_time\n"
	tasks, err := Tasks("t.csv", strings.NewReader(head+"a,1000,1024,search,LS,,100,512,5,7,67\nb,1000,1024,,BE,310,,,5,,9\nc,1000,1024,,,,,,,,\n"))
	if err != nil {
		t.Fatal(err)
	}
	a, b, c := tasks[0], tasks[1], tasks[2]
	if a.User != "search" || a.Priority != 200 || !a.Ranked || !a.Measured || a.Used.RAMBytes != 512<<20 || !a.Timed || a.Arrives.Seconds() != 5 || a.Lasts.Seconds() != 60 || a.Line != 2 {
		t.Errorf("%+v", a)
	}
	if b.Priority != 310 || b.Measured || b.Lasts.Seconds() != 4 || c.Ranked || c.Timed {
		t.Errorf("%+v\n%+v", b, c)
	}
	nodes := []Node{{Name: "n", CPUMilli: 4000, RAMMiB: 4096}}
	if cell, _ := WorkOf(nodes, tasks[:1]); cell.Reserved[0].CPUMilli != 125 || cell.Asks[0].Name.User != "search" || cell.Asks[0].Priority != 200 {
		t.Errorf("%+v", cell)
	}
	if cell, _ := WorkOf(nodes, tasks); cell.Reserved != nil {
		t.Error("reservations of tasks of which nothing was measured")
	}
	for row, want := range map[string]string{
		"a,1,1,No Body,,,,,,,": "t.csv:2: column user: ",
		"a,1,1,,Silver,,,,,,":  `t.csv:2: column qos: "Silver": want BE, Burstable, Guaranteed, LS`,
		"a,1,1,,,400,,,,,":     `t.csv:2: column priority: "400" is not a number from 0 to 399`,
		"a,1,1,,,,x,1,,,":      `t.csv:2: column cpu_used_milli: "x" is not a number`,
		"a,1,1,,,,,,9,,5":      "t.csv:2: column deletion_time: is 4s before creation_time",
		"a,1,1,,,,,,5,4,9":     "t.csv:2: column scheduled_time: is not between",
		"a,1,1,,,,,,5,soon,9":  `t.csv:2: column scheduled_time: "soon" is not a number`,
	} {
		if _, err := Tasks("t.csv", strings.NewReader(head+row+"\n")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v: want %q", row, err, want)
		}
	}
}
