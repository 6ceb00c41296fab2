package placement

import (
	"cmp"
	"slices"
)

// entry is an ask that waits for its turn.
type entry struct {
	ask     *Ask
	job     int32
	evicted bool
}

// queue is what a user still asks for, by job; the first job has the turn.
type queue struct {
	jobs [][]entry
}

// queuesOf returns the queues of the users whose asks a list has, which is sorted by user and job.
func queuesOf(level []entry) (users []queue) {
	for from := 0; from < len(level); {
		to := from + 1
		for to < len(level) && level[to].job == level[from].job {
			to++
		}
		a, b := &level[from].ask.Name, &level[max(from-1, 0)].ask.Name
		if from == 0 || a.User != b.User || a.Cell != b.Cell {
			users = append(users, queue{})
		}
		u := &users[len(users)-1]
		u.jobs = append(u.jobs, level[from:to])
		from = to
	}
	return users
}

// turnsOf uses the queues up and returns their asks, of which there are n, in the order of their
// turns. A turn is one ask, or a whole job.
func turnsOf(users []queue, whole bool, n int) []entry {
	turns := make([]entry, 0, n)
	for len(users) > 0 {
		left := users[:0]
		for _, u := range users {
			j := u.jobs[0]
			u.jobs = u.jobs[1:]
			n := 1
			if whole {
				n = len(j)
			}
			turns = append(turns, j[:n]...)
			if len(j) > n {
				u.jobs = append(u.jobs, j[n:])
			}
			if len(u.jobs) > 0 {
				left = append(left, u)
			}
		}
		users = left
	}
	return turns
}

// largestFirst has each user's turns begin with the largest asks, and the users take theirs
// by the first of these: what is small finds room after what is large, which does not find it
// after what is small. So the order in which hundreds of asks come that are decided at once is no
// matter.
func largestFirst(users []queue, sizeOf func(*Ask) float32) {
	for _, u := range users {
		sortLargest(u.jobs, func(j []entry) float32 { return sizeOf(j[0].ask) })
	}
	sortLargest(users, func(u queue) float32 { return sizeOf(u.jobs[0][0].ask) })
}

// sortLargest sorts a list by size, the largest first; what is of one size stays in order.
func sortLargest[T any](list []T, size func(T) float32) {
	type sized struct {
		of   T
		size float32
	}
	all := make([]sized, 0, len(list))
	for _, x := range list {
		all = append(all, sized{x, size(x)})
	}
	slices.SortStableFunc(all, func(a, b sized) int { return cmp.Compare(b.size, a.size) })
	for i := range all {
		list[i] = all[i].of
	}
}

// compareWaiters orders asks of a priority.
func compareWaiters(a, b entry) int {
	if a.ask.Back != b.ask.Back {
		return cmp.Compare(boolByte(b.ask.Back), boolByte(a.ask.Back))
	}
	if c := cmp.Compare(b.ask.Waited, a.ask.Waited); c != 0 {
		return c // without a look at their names
	}
	return compareEntries(a, b)
}

func compareEntries(a, b entry) int {
	return cmp.Or(a.ask.Name.Compare(b.ask.Name), cmp.Compare(a.ask.Generation, b.ask.Generation))
}
