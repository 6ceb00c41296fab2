package directory_test

import (
	"testing"

	"github.com/musterhq/muster/nodeagent/directory"
	"github.com/musterhq/muster/nodeagent/naming"
	"github.com/musterhq/muster/schema"
)

func TestAllFollow(t *testing.T) {
	t.Parallel()
	var waiting []func()
	var seen []*naming.Snapshot
	d := directory.New(
		func(now *naming.Snapshot, _ naming.Touched, done func()) {
			seen = append(seen, now)
			done()
		},
		func(_ *naming.Snapshot, touched naming.Touched, done func()) {
			if len(touched.Machines) != 1 || touched.Machines[0] != "m0" {
				t.Errorf("touched: %+v", touched)
			}
			waiting = append(waiting, done)
		},
	)
	before := d.Digests()
	did := 0
	d.Apply(schema.DirectoryChange{Set: []schema.DirectoryEntry{{Machine: &schema.DirectoryMachine{Name: "m0"}}}}, func() { did++ })
	if did != 0 || len(waiting) != 1 {
		t.Fatalf("done %d times before all follow", did)
	}
	waiting[0]()
	if did != 1 {
		t.Errorf("done %d times", did)
	}
	if len(seen) != 1 || seen[0] != d.Snapshot() {
		t.Error("a follower has another snapshot than the directory")
	}
	if _, ok := d.Snapshot().Machine("m0"); !ok || d.Digests() == before {
		t.Error("the machine is missing")
	}
}

func TestNobodyFollows(t *testing.T) {
	t.Parallel()
	did := 0
	directory.New().Apply(schema.DirectoryChange{Whole: true}, func() { did++ })
	if did != 1 {
		t.Errorf("done %d times", did)
	}
}
