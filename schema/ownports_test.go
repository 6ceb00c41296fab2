package schema_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema"
)

// A port without a number gets one that nobody has in the same network.
func TestOwnPorts(t *testing.T) {
	t.Parallel()
	j := &schema.Job{}
	j.Task.Resources.Ports, j.Task.Resources.PortNumbers = []string{"in", "web", "out"}, map[string]int{"web": 20001}
	for _, c := range []struct{ others, want []int }{
		{nil, []int{20000, 20001, 20002}},
		{[]int{20000, 20002, 80}, []int{20003, 20001, 20004}},
	} {
		var got []int
		for _, name := range j.Task.Resources.Ports {
			n, _ := j.OwnPorts(c.others).Get(name)
			got = append(got, n)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("beside %v (-want +got):\n%s", c.others, diff)
		}
	}
}
