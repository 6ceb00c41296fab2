package sim

import "testing"

// TestSuspended suspends jobs in the middle of random histories: see
// checkSuspended. It does so more often than those do.
func TestSuspended(t *testing.T) {
	t.Parallel()
	seeds, steps := uint64(3), 400
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		w := New(Seeded(seed, 0).World)
		if err := w.Play(everything.generate(seed, steps/4)); err != nil { // there is something to suspend then
			t.Fatalf("seed %d: %v\n%s", seed, err, w.History())
		}
		suspended := 0
		for i, a := range everything.generate(seed+1000, steps) {
			switch a.N % 20 {
			case 0, 1:
				a.Do = "suspend"
			case 2:
				a.Do = "resume"
			case 3, 4:
				a.Do = "version"
			case 5:
				a.Do = "remove"
			}
			if err := w.Do(a); err != nil {
				t.Fatalf("seed %d, step %d: %v\n%s", seed, i, err, w.History())
			}
			if w.master != nil {
				suspended = max(suspended, len(w.master.state.Suspensions))
			}
		}
		if suspended < 2 {
			t.Errorf("seed %d: at most %d suspensions at once: this tests nothing", seed, suspended)
		}
	}
}
