package placement

import (
	"fmt"
	"math"
	"slices"

	"github.com/musterhq/muster/placement/layout"
	"github.com/musterhq/muster/schema"
)

// skew is a SkewLimit made ready to be asked of many machines, and how a job is spread as
// of certain counts in the snapshot.
type skew struct {
	SkewLimit
	column   *layout.Column
	shapes   int // Snapshot.shapes, for which eligible holds
	changes  int // of the job, for which open holds
	version  int // counts how often open has become another
	eligible []bool
	open     []bool // by value: it may get one task more
	scored   []bool // open, as of when the scores were brought up to date
	fewest   int32  // tasks of the job in a domain
	at       int32  // value of the domain that has the fewest, 0 if one is missing
	domains  int
}

// weigh brings up to date which domains may get one task more, of tasks of the job by value.
func (k *skew) weigh(stay []int32) {
	k.fewest, k.at = math.MaxInt32, 0
	for v, ok := range k.eligible {
		if n := tasksIn(stay, int32(v)); ok && (n < k.fewest || n == k.fewest && k.column.Values[v] < k.column.Values[k.at]) {
			k.fewest, k.at = n, int32(v)
		}
	}
	if k.domains < k.MinDomains || k.domains == 0 {
		k.fewest, k.at = 0, 0
	}
	was := len(k.open)
	k.open = slices.Grow(k.open, max(0, len(k.column.Values)-was))[:len(k.column.Values)]
	clear(k.open[min(was, len(k.open)):])
	turned := was != len(k.open)
	for v := 1; v < len(k.open); v++ {
		open := int(tasksIn(stay, int32(v)))+1-int(k.fewest) <= k.Max
		turned = turned || open != k.open[v]
		k.open[v] = open
	}
	if turned {
		k.version++
	}
}

// mayLeave reports whether a task may leave a domain, which has so many of the job then, for
// another: it does not fall further behind a third one than it may.
func (k *skew) mayLeave(from, to, left int32, stay []int32) bool {
	if from == 0 || from == to || !k.eligible[from] || k.domains < k.MinDomains {
		return true
	}
	fewest, most := int32(math.MaxInt32), int32(0)
	for v, ok := range k.eligible {
		if v := int32(v); ok && v != from {
			n := tasksIn(stay, v)
			if v == to {
				n++
			}
			fewest, most = min(fewest, n), max(most, n)
		}
	}
	return left >= fewest || int(most-left) <= k.Max
}

func tasksIn(counts []int32, value int32) int32 {
	if int(value) >= len(counts) {
		return 0
	}
	return counts[value]
}

// reason says why a machine gets no task.
func (k *skew) reason(slot int32) Reason {
	switch {
	case k.column.At[slot] == 0:
		return Reason(fmt.Sprintf("lack the attribute %s, which spread.maxSkew is about", k.Attribute))
	case k.domains < k.MinDomains:
		return Reason(fmt.Sprintf("are at spread.maxSkew %d over %s: of minDomains %d only %d can get a task", k.Max, k.Attribute, k.MinDomains, k.domains))
	}
	return Reason(fmt.Sprintf("are at spread.maxSkew %d over %s: %s has %s of the job", k.Max, k.Attribute, k.column.Values[k.at], schema.Count(int(k.fewest), "task")))
}
