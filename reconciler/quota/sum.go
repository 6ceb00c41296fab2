package quota

import (
	"fmt"
	"math/big"
	"math/bits"
	"strings"
)

// sum is an amount that no number of jobs and quotas overflows: 128 bits. What
// a job of MaxTasks tasks may ask for comes close to 2^63 already.
type sum struct{ hi, lo uint64 }

// sumOf returns n as a sum, a negative n as 0.
func sumOf(n int64) sum { return sum{lo: uint64(max(n, 0))} }

func (s sum) plus(t sum) sum {
	lo, carry := bits.Add64(s.lo, t.lo, 0)
	hi, _ := bits.Add64(s.hi, t.hi, carry)
	return sum{hi, lo}
}

// minus returns s - t, and 0 where t is more.
func (s sum) minus(t sum) sum {
	if !s.over(t) {
		return sum{}
	}
	lo, borrow := bits.Sub64(s.lo, t.lo, 0)
	hi, _ := bits.Sub64(s.hi, t.hi, borrow)
	return sum{hi, lo}
}

// over reports whether s is more than t.
func (s sum) over(t sum) bool { return s.hi > t.hi || s.hi == t.hi && s.lo > t.lo }

// times returns s counted n times; s is below 2^64, n is not negative.
func (s sum) times(n int) sum {
	hi, lo := bits.Mul64(s.lo, uint64(n))
	return sum{hi, lo}
}

func (s sum) least(t sum) sum {
	if s.over(t) {
		return t
	}
	return s
}

// percent returns n percent of s, rounded down; s is below 2^64, n is positive.
func (s sum) percent(n int) sum {
	hi, lo := bits.Mul64(s.lo, uint64(n))
	q, _ := bits.Div64(hi%100, lo, 100)
	return sum{hi / 100, q}
}

// String returns s in decimal digits, with a comma between thousands.
func (s sum) String() string {
	n := new(big.Int).SetUint64(s.hi)
	digits := n.Lsh(n, 64).Or(n, new(big.Int).SetUint64(s.lo)).String()
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

// cores returns s thousandths of a core as schema.CPU does: 10,000, or 500m.
func (s sum) cores() string {
	if s.hi == 0 && s.lo%1000 == 0 {
		return sum{lo: s.lo / 1000}.String()
	}
	return s.String() + "m"
}

// size returns s bytes in the largest binary unit that it has one of, with at
// most one decimal: 12 GiB, 1.5 GiB.
func (s sum) size() string {
	f := float64(s.hi)*(1<<64) + float64(s.lo)
	if f < 1024 {
		return s.String() + " bytes"
	}
	units := []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	i := 0
	for f /= 1024; f >= 1023.95 && i < len(units)-1; i++ { // what rounds to 1024 is one of the next
		f /= 1024
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0") + " " + units[i]
}
