package turns_test

import (
	"fmt"
	"testing"

	"github.com/musterhq/muster/schema/turns"
)

// Each step is taken by one of the runs that share a walk, and by a run of its own.
func TestTakes(t *testing.T) {
	const steps, runs = 10, 3
	takenBy := make([]int, steps)
	for k := range runs {
		t.Setenv(turns.Env, fmt.Sprintf("%d/%d", k, runs))
		for step := range steps {
			if turns.Takes(step) {
				takenBy[step]++
			}
		}
	}
	t.Setenv(turns.Env, "")
	for step, n := range takenBy {
		if n != 1 || !turns.Takes(step) {
			t.Errorf("step %d is taken by %d of %d runs, and alone: %v; want 1 and true", step, n, runs, turns.Takes(step))
		}
	}
}

func TestTakesNothingElse(t *testing.T) {
	for _, value := range []string{"3/3", "-1/3", "1", "1/0", "a/b"} {
		t.Setenv(turns.Env, value)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q is taken for a part of a walk", value)
				}
			}()
			turns.Takes(1)
		}()
	}
}
