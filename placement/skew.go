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
	// turned are the values of which open has become another since then, some more than once;
	// unless many may have.
	turned  []int32
	many    bool
	fewest  int32 // tasks of the job in a domain, but for those on their way
	lowest  int   // domains that have so few
	at      int32 // value of one, see hasFewest; -1 if it is not known
	domains int
}

// weigh brings up to date which domains may get one task more, of tasks of the job by value: those
// that are there, and with those that are on their way to a domain. The bound holds for both: who
// is on its way may come much later than who is placed now, and does not make way for it then.
func (k *skew) weigh(there, stay []int32) {
	with, _ := k.fewestOf(stay)
	k.fewest, k.lowest = k.fewestOf(there)
	k.at = -1
	was := len(k.open)
	k.open = slices.Grow(k.open, max(0, len(k.column.Values)-was))[:len(k.column.Values)]
	clear(k.open[min(was, len(k.open)):])
	turned := was != len(k.open)
	for v := 1; v < len(k.open); v++ {
		open := k.mayGet(tasksIn(there, int32(v)), k.fewest) && k.mayGet(tasksIn(stay, int32(v)), with)
		turned = turned || open != k.open[v]
		k.open[v] = open
	}
	if turned {
		k.many = true
		k.version++
	}
}

// fewestOf returns the fewest tasks that a domain has, of counts by value, and how many have so few.
func (k *skew) fewestOf(counts []int32) (fewest int32, lowest int) {
	if k.isMissing() {
		return 0, 0
	}
	fewest = math.MaxInt32
	for v, ok := range k.eligible {
		if !ok {
			continue
		}
		switch n := tasksIn(counts, int32(v)); {
		case n < fewest:
			fewest, lowest = n, 1
		case n == fewest:
			lowest++
		}
	}
	return fewest, lowest
}

// isMissing reports whether there are fewer domains than there have to be, so that one that is
// missing has the fewest tasks.
func (k *skew) isMissing() bool { return k.domains < k.MinDomains || k.domains == 0 }

// mayGet reports whether a domain that has so many tasks may get one more where another has so few.
func (k *skew) mayGet(stay, fewest int32) bool { return int(stay)+1-int(fewest) <= k.Max }

// come does what weigh does, after one task more has come to the domain of a value. It reports
// false if all domains have to be weighed, since the fewest tasks that any has are more now. A job
// that is placed comes to that once for each round over the domains.
func (k *skew) come(v int32, stay []int32) bool {
	if v == 0 {
		return true
	}
	n := tasksIn(stay, v)
	k.at = -1
	if k.eligible[v] && !k.isMissing() && n == k.fewest+1 {
		if k.lowest == 1 {
			return false
		}
		k.lowest--
	}
	if k.open[v] && !k.mayGet(n, k.fewest) {
		k.open[v] = false
		k.version++
		if k.many = k.many || len(k.turned) == len(k.open); !k.many {
			k.turned = append(k.turned, v)
		}
	}
	return true
}

// follow has the scores be as of now. It returns the values of which open was another before;
// false if it was not the same values.
func (k *skew) follow() (turned []int32, ok bool) {
	if len(k.open) != len(k.scored) {
		return nil, false
	}
	if k.many {
		k.turned = k.turned[:0]
		for v := range k.open {
			k.turned = append(k.turned, int32(v))
		}
	}
	turned = k.turned[:0]
	for _, v := range k.turned {
		if k.open[v] != k.scored[v] {
			k.scored[v] = k.open[v]
			turned = append(turned, v)
		}
	}
	k.turned, k.many = k.turned[:0], false
	return turned, true
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

// hasFewest returns the domain that has the fewest tasks, of several the first by name; "" if
// one is missing.
func (k *skew) hasFewest(stay []int32) string {
	if k.at < 0 {
		k.at = 0
		for v, ok := range k.eligible {
			if ok && !k.isMissing() && tasksIn(stay, int32(v)) == k.fewest && (k.at == 0 || k.column.Values[v] < k.column.Values[k.at]) {
				k.at = int32(v)
			}
		}
	}
	return k.column.Values[k.at]
}

// reason says why a machine gets no task, of tasks of the job by value.
func (k *skew) reason(slot int32, stay []int32) Reason {
	switch {
	case k.column.At[slot] == 0:
		return Reason(fmt.Sprintf("lack the attribute %s, which spread.maxSkew is about", k.Attribute))
	case k.domains < k.MinDomains:
		return Reason(fmt.Sprintf("are at spread.maxSkew %d over %s: of minDomains %d only %d can get a task", k.Max, k.Attribute, k.MinDomains, k.domains))
	}
	return Reason(fmt.Sprintf("are at spread.maxSkew %d over %s: %s has %s of the job", k.Max, k.Attribute, k.hasFewest(stay), schema.Count(int(k.fewest), "task")))
}
