package reconciler_test

import (
	"fmt"
	"testing"

	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// TestJoinsTogether: what is written of machines that join together is handed out at
// once, but for those whose answers depend on each other.
func TestJoinsTogether(t *testing.T) {
	t.Parallel()
	m, err := reconciler.NewMaster(reconciler.MasterConfig{Cell: "c"}, nil, epoch)
	if err != nil {
		t.Fatal(err)
	}
	if _, more := m.Ready(epoch); more {
		m.Advance(epoch)
	}
	agent := func(name, id string) *schema.MachineInfo { return &schema.MachineInfo{Name: name, ID: id, Boot: "b"} }
	for i := range 3 {
		a := agent(fmt.Sprint("m", i), fmt.Sprint("id", i))
		if !m.MayJoin(a) {
			t.Fatalf("%s may not join beside others", a.Name)
		}
		if e, err := m.Join(*a, epoch); e != 1 || err != nil {
			t.Fatalf("%s joins with epoch %d, %v", a.Name, e, err)
		}
	}
	for _, a := range []*schema.MachineInfo{agent("m1", "other"), agent("m9", "id1")} {
		if m.MayJoin(a) {
			t.Errorf("%s with id %s joins before the one with the same is stored", a.Name, a.ID)
		}
	}
	ready, _ := m.Ready(epoch)
	if len(ready.Writes) != 3 || len(ready.Events) != 3 {
		t.Fatalf("%d writes and %d events of 3 joins", len(ready.Writes), len(ready.Events))
	}
	if err := m.Stored(ready.Writes); err != nil {
		t.Fatal(err)
	}
	m.Advance(epoch)
	if err := m.Report("m1", 1, schema.Report{Machine: *agent("m1", "id1")}, epoch); err != nil {
		t.Fatal(err)
	}
	if a := agent("m9", "id1"); !m.MayJoin(a) {
		t.Error("what is stored is waited for")
	} else if _, err := m.Join(*a, epoch); err == nil {
		t.Error("two machines that are up have one id")
	}
}

// TestJoinBesideOthers: a join waits for other writes.
func TestJoinBesideOthers(t *testing.T) {
	t.Parallel()
	m, err := reconciler.NewMaster(reconciler.MasterConfig{Cell: "c"}, nil, epoch)
	if err != nil {
		t.Fatal(err)
	}
	head := compiled("c1", good(pkg(".", schema.Cell{Name: "c"})))
	m.Head(model.Seen{Commit: "c1"}, epoch)
	m.Compiled(&head, epoch)
	if m.MayJoin(&schema.MachineInfo{Name: "m1"}) {
		t.Error("a machine joins while a commit is not stored")
	}
}
