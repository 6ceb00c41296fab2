package placement_test

import (
	"fmt"
	"testing"

	"github.com/musterhq/muster/placement"
)

// Devices of machines that come and go count as names: whoever keeps a snapshot learns of them.
func TestNamesOfDevices(t *testing.T) {
	t.Parallel()
	s := placement.NewSnapshot([]placement.Machine{{Name: "stays", Up: true}}, nil)
	before := s.Names()
	for i := range 100 {
		m := placement.Machine{Name: "comes", Up: true}
		m.Devices = []placement.Device{{Kind: "gpu", Model: fmt.Sprint("T", i), Count: 1, Attributes: map[string]string{"serial": fmt.Sprint(i)}}}
		s.SetMachine(m)
		s.RemoveMachine(m.Name)
	}
	if grown := s.Names() - before; grown < 200 {
		t.Errorf("after 100 models and 100 sets of attributes %d names more are known", grown)
	}
}
