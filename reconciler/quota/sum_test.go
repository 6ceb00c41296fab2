package quota

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func bigOf(s sum) *big.Int {
	n := new(big.Int).SetUint64(s.hi)
	return n.Lsh(n, 64).Add(n, new(big.Int).SetUint64(s.lo))
}

// TestSum holds the arithmetic of sums against math/big.
func TestSum(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) sum {
			return sum{rapid.Uint64Range(0, 1<<62).Draw(t, label), rapid.OneOf(rapid.Uint64(), rapid.Just(uint64(math.MaxUint64))).Draw(t, label)}
		}
		a, b := draw("a"), draw("b")
		x, y := bigOf(a), bigOf(b)
		check := func(op string, got sum, want *big.Int) {
			if bigOf(got).Cmp(want) != 0 {
				t.Fatalf("%s of %s and %s: got %s, want %s", op, x, y, bigOf(got), want)
			}
		}
		check("plus", a.plus(b), new(big.Int).Add(x, y))
		less := new(big.Int).Sub(x, y)
		if less.Sign() < 0 {
			less.SetInt64(0)
		}
		check("minus", a.minus(b), less)
		if a.over(b) != (x.Cmp(y) > 0) || a.over(a) {
			t.Fatalf("%s over %s: %t", x, y, a.over(b))
		}
		n := rapid.IntRange(0, 100_000).Draw(t, "n")
		small := sum{lo: a.lo}
		check("times", small.times(n), new(big.Int).Mul(bigOf(small), big.NewInt(int64(n))))
		check("percent", small.percent(n), new(big.Int).Div(new(big.Int).Mul(bigOf(small), big.NewInt(int64(n))), big.NewInt(100)))
	})
}

func TestSumInWords(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		s            sum
		digits, size string
	}{
		{sumOf(0), "0", "0 bytes"},
		{sumOf(-5), "0", "0 bytes"},
		{sumOf(999), "999", "999 bytes"},
		{sumOf(1000), "1,000", "1,000 bytes"},
		{sumOf(1024), "1,024", "1 KiB"},
		{sumOf(123456), "123,456", "120.6 KiB"},
		{sumOf(1<<20 - 1), "1,048,575", "1 MiB"},
		{sumOf(12 << 30), "12,884,901,888", "12 GiB"},
		{sumOf(math.MaxInt64), "9,223,372,036,854,775,807", "8 EiB"},
		{sum{hi: 1}, "18,446,744,073,709,551,616", "16 EiB"},
		{sum{hi: 1 << 20}, "19,342,813,113,834,066,795,298,816", "16777216 EiB"},
	} {
		if got := c.s.String(); got != c.digits {
			t.Errorf("%v is written %s, want %s", c.s, got, c.digits)
		}
		if got := c.s.size(); got != c.size {
			t.Errorf("%s bytes is %q, want %q", c.digits, got, c.size)
		}
	}
}
