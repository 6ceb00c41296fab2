package strike_test

import (
	"fmt"
	"testing"

	"github.com/musterhq/muster/nodeagent/strike"
)

// Each step is taken by one of the runs that share a walk, and by a run of its own.
func TestTakes(t *testing.T) {
	const steps, runs = 10, 3
	takenBy := make([]int, steps)
	for k := range runs {
		t.Setenv(strike.WalkEnv, fmt.Sprintf("%d/%d", k, runs))
		for step := range steps {
			if strike.Takes(step) {
				takenBy[step]++
			}
		}
	}
	t.Setenv(strike.WalkEnv, "")
	for step, n := range takenBy {
		if n != 1 || !strike.Takes(step) {
			t.Errorf("step %d is taken by %d of %d runs, and alone: %v; want 1 and true", step, n, runs, strike.Takes(step))
		}
	}
}

func TestTakesNothingElse(t *testing.T) {
	for _, value := range []string{"3/3", "-1/3", "1", "1/0", "a/b"} {
		t.Setenv(strike.WalkEnv, value)
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q is taken for a part of a walk", value)
				}
			}()
			strike.Takes(1)
		}()
	}
}
