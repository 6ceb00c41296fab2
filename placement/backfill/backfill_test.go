package backfill_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/placement/backfill"
)

// What is said to be left is so whichever tasks go, and is not less than that.
func TestLeastBeyond(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lack := rapid.Int64Range(-5, 30).Draw(t, "lack")
		gains := rapid.SliceOfN(rapid.Int64Range(0, 12), 0, 8).Draw(t, "gains")
		var beyond []int64
		for some := range 1 << len(gains) {
			sum := -lack
			for i, gain := range gains {
				if some>>i&1 == 1 {
					sum += gain
				}
			}
			if sum >= 0 {
				beyond = append(beyond, sum)
			}
		}
		want := int64(0)
		if len(beyond) > 0 {
			want = slices.Min(beyond)
		}
		if got := backfill.LeastBeyond(lack, gains); got != want {
			t.Fatalf("%d is left at least, want %d", got, want)
		}
	})
}

// Where too many sums are possible nothing is said to be left.
func TestTooManySums(t *testing.T) {
	t.Parallel()
	var gains []int64
	for i := range 20 {
		gains = append(gains, 1<<i)
	}
	if got := backfill.LeastBeyond(1<<20, gains); got != 0 {
		t.Errorf("%d is left at least, want 0", got)
	}
}
