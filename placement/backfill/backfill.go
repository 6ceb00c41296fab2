package backfill

import (
	"math"
	"slices"
)

// Leftover is what an ask for which a machine is held will leave of the room there: CPU in thousandths of
// a core, memory and disk in bytes, and ports that the cell may give. Below zero, there is not enough.
type Leftover struct {
	Room  [3]int64
	Ports int
}

// Of returns what is left where something lacks; what is not wanted lacks less than nothing.
func Of(lack [3]int64, ports int) Leftover {
	return Leftover{[3]int64{-lack[0], -lack[1], -lack[2]}, -ports}
}

// Enough reports whether nothing lacks.
func (x Leftover) Enough() bool {
	return min(x.Room[0], x.Room[1], x.Room[2]) >= 0 && x.Ports >= 0
}

// Less returns what a task that takes some of it leaves.
func (x Leftover) Less(limit [3]int64, ports int) Leftover {
	for d := range x.Room {
		x.Room[d] -= limit[d]
	}
	x.Ports -= ports
	return x
}

// mostSums bounds how many sums are looked at, which is little where tasks are alike.
const mostSums = 128

// LeastBeyond returns by how much some of the gains exceed at least what lacks, if any of them do; 0 if
// none do, or that is not known, as when there are too many different sums.
func LeastBeyond(lack int64, gains []int64) int64 {
	if lack <= 0 {
		return -lack
	}
	least := int64(math.MaxInt64)
	sums := []int64{0} // below what lacks, sorted
	for _, gain := range gains {
		for _, sum := range sums[:len(sums):len(sums)] {
			if sum += gain; sum >= lack {
				least = min(least, sum-lack)
			} else {
				sums = append(sums, sum)
			}
		}
		slices.Sort(sums)
		if sums = slices.Compact(sums); len(sums) > mostSums {
			return 0
		}
	}
	if least == math.MaxInt64 {
		return 0
	}
	return least
}
