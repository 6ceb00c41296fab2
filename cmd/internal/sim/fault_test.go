package sim

import (
	"testing"

	"github.com/musterhq/muster/schema"
)

// TestEffects wants every action of a random history to have an effect now and
// then, every fate of a write to be met, and the cell to be as large as it
// shall be.
func TestEffects(t *testing.T) {
	t.Parallel()
	effects := map[ActionKind]int{}
	for _, seed := range []uint64{4, 5, 6, 7, varied + 6} { // the last has what the others never do
		s := Seeded(seed, 800)
		w, err := s.Play(nil)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for do, n := range w.effects {
			effects[do] += n
		}
		if !whole(seed) {
			continue // it is smaller, and leaves some out
		}
		if len(w.machines) < 20 {
			t.Errorf("seed %d has %d machines, want 20", seed, len(w.machines))
		}
		bands, kinds, owners := map[schema.Band]bool{}, map[schema.JobKind]bool{}, map[string]bool{}
		tasks := 0
		for _, ps := range w.processes() {
			tasks += len(ps)
		}
		for _, j := range w.master.state.Jobs {
			d := w.master.state.Data[j.Admitted]
			bands[d.Priority.Band()], kinds[d.Kind], owners[d.User] = true, true, true
		}
		if tasks < 100 || len(bands) < 3 || len(kinds) < 4 || len(owners) < 5 {
			t.Errorf("seed %d ends with %d tasks of the bands %v, the kinds %v and the owners %v", seed, tasks, bands, kinds, owners)
		}
	}
	for _, do := range actionKinds() {
		if do == "suspend" || do == "resume" {
			continue // TestSuspended does them: a cell that stays suspended never is as its head says
		}
		if do != Wait && effects[do] == 0 {
			t.Errorf("%s never had an effect", do)
		}
	}
}
