package nodeagent

import (
	"fmt"
	"slices"
)

// CoreUse is a task's use of the machine's cores.
type CoreUse struct {
	// Whole is how many cores it has, or shall have, for itself; 0 for a task
	// that shares.
	Whole int
	// Set are the cores that it may run on now, sorted; nil for a task that is
	// not there yet.
	Set []int
}

// DivideCores returns the cores that each of uses shall have: those that want
// whole cores get them for themselves, and all others share the rest. A task
// keeps the cores that it has, as far as nobody before it in the list has them.
// Others are taken from the end: the first core takes most of the machine's
// interrupts. It errs, with the index of the first task that cannot be served,
// when there are not enough cores, or none would be left for those that share.
//
// cores are those of the machine, sorted.
func DivideCores(cores []int, uses []CoreUse) (sets [][]int, short int, err error) {
	sets = make([][]int, len(uses))
	taken := map[int]bool{}
	sharing := -1
	for i, u := range uses { // first what is there already
		if u.Whole == 0 {
			sharing = i
			continue
		}
		for _, core := range u.Set {
			if len(u.Set) <= len(cores) && len(sets[i]) < u.Whole && slices.Contains(cores, core) && !taken[core] {
				sets[i] = append(sets[i], core)
				taken[core] = true
			}
		}
	}
	for i, u := range uses {
		for k := len(cores) - 1; k >= 0 && len(sets[i]) < u.Whole; k-- {
			if !taken[cores[k]] {
				sets[i] = append(sets[i], cores[k])
				taken[cores[k]] = true
			}
		}
		if len(sets[i]) < u.Whole {
			return nil, i, fmt.Errorf("%d cores of its own: %d of the machine's %d are left", u.Whole, len(sets[i]), len(cores))
		}
		slices.Sort(sets[i])
	}
	shared := slices.DeleteFunc(slices.Clone(cores), func(core int) bool { return taken[core] })
	if sharing >= 0 && len(shared) == 0 {
		return nil, sharing, fmt.Errorf("no core is left for tasks without cores of their own: all %d are taken", len(cores))
	}
	for i, u := range uses {
		if u.Whole == 0 {
			sets[i] = shared
		}
	}
	return sets, -1, nil
}
