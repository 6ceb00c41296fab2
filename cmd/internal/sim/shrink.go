package sim

import (
	"regexp"
	"slices"
	"strings"
)

// KindOf returns what of an error says which invariant is broken: without the
// names and numbers, and without the reasons that follow a colon.
func KindOf(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	if head, _, ok := strings.Cut(text, "does not converge:"); ok {
		return head + "does not converge"
	}
	text, _, _ = strings.Cut(text, "\n")
	return strings.Join(strings.Fields(particular.ReplaceAllString(text, "#")), " ")
}

// particular is a word that names one thing: it has a number, a slash or a
// bracket in it. Several in a row are as one.
var particular = regexp.MustCompile(`([^\s]*[0-9/\[{(][^\s]*\s*)+`)

// Shrinking is a script that breaks an invariant while it is made shorter.
type Shrinking struct {
	// Fails plays a script and returns the error, nil if all holds.
	Fails func(*Script) error
	// Tries is how many scripts may be played.
	Tries int
	// Done says that it is enough for now, whatever is left of Tries.
	Done func() bool

	best Script
	kind string
}

// Shrink returns a script that breaks the same invariant with fewer actions, in
// a smaller world, for a shorter time, as far as that is found. s must fail.
func (x *Shrinking) Shrink(s Script) Script {
	x.best, x.kind = s, KindOf(x.Fails(&s))
	if x.kind == "" {
		return s
	}
	for before := ""; before != x.best.String() && !x.over(); {
		before = x.best.String()
		x.cut()
		x.smaller()
		x.fewer()
		x.drop()
		x.tidy()
		x.faster()
	}
	return x.best
}

func (x *Shrinking) over() bool { return x.Tries <= 0 || x.Done != nil && x.Done() }

// try takes a script if it breaks the same invariant.
func (x *Shrinking) try(s Script) bool {
	if x.over() {
		return false
	}
	x.Tries--
	if KindOf(x.Fails(&s)) != x.kind {
		return false
	}
	x.best = s
	return true
}

// with returns the best script with other actions.
func (x *Shrinking) with(actions []Action) Script {
	s := x.best
	s.Actions = actions
	return s
}

// cut looks for the shortest beginning that does.
func (x *Shrinking) cut() {
	if x.best.Calm {
		s := x.best
		s.Calm = false
		x.try(s)
	}
	low, high := 0, len(x.best.Actions) // fails with high
	for low < high && !x.over() {
		middle := (low + high) / 2
		if x.try(x.with(x.best.Actions[:middle])) {
			high = middle
		} else {
			low = middle + 1
		}
	}
}

// drop takes away runs of actions, first long ones, then shorter ones: with the
// time that passes after them, or else without.
func (x *Shrinking) drop() {
	for size := max(1, len(x.best.Actions)/2); ; size /= 2 {
		for at := 0; at < len(x.best.Actions) && !x.over(); {
			if !x.dropRun(at, min(at+size, len(x.best.Actions))) {
				at += size
			}
		}
		if size == 1 || x.over() {
			return
		}
	}
}

func (x *Shrinking) dropRun(from, to int) bool {
	all := x.best.Actions
	if x.try(x.with(slices.Concat(all[:from], all[to:]))) {
		return true
	}
	turns := 0
	for _, a := range all[from:to] {
		turns += a.Turns
	}
	if turns == 0 {
		return false
	}
	if from == 0 {
		wait := Action{Do: Wait, Turns: turns}
		return (to > 1 || all[0].Do != Wait) && x.try(x.with(slices.Concat([]Action{wait}, all[to:])))
	}
	longer := all[from-1]
	longer.Turns += turns
	return x.try(x.with(slices.Concat(all[:from-1], []Action{longer}, all[to:])))
}

// tidy makes the numbers of actions small.
func (x *Shrinking) tidy() {
	for i := range x.best.Actions {
		for _, f := range []func(*Action) *int{
			func(a *Action) *int { return &a.Turns }, func(a *Action) *int { return &a.Machine },
			func(a *Action) *int { return &a.Job }, func(a *Action) *int { return &a.N },
		} {
			x.least(i, f)
		}
	}
}

// least looks for a small number of a field of the i-th action that does. Jobs and
// machines count modulo how many there are.
func (x *Shrinking) least(i int, of func(*Action) *int) {
	set := func(n int) bool {
		actions := slices.Clone(x.best.Actions)
		*of(&actions[i]) = n
		return x.try(x.with(actions))
	}
	now := *of(&x.best.Actions[i])
	for n := range min(now, 4) {
		if set(n) {
			return
		}
	}
	low, high := 3, now
	for _, m := range []int{len(x.best.World.allJobs()), x.best.World.Machines} {
		if n := now % m; n > low && n < high && set(n) {
			high = n
		}
	}
	for low+1 < high && !x.over() {
		if middle := (low + high) / 2; set(middle) {
			high = middle
		} else {
			low = middle
		}
	}
}

// fewer takes away jobs that are there at first.
func (x *Shrinking) fewer() {
	jobs := strings.Split(x.best.World.Jobs, ",")
	if x.best.World.Jobs == "" {
		jobs = x.best.World.allJobs()
	}
	for size := max(1, len(jobs)/2); ; size /= 2 {
		for at := 0; at < len(jobs) && !x.over(); {
			s, less := x.best, slices.Concat(jobs[:at], jobs[min(at+size, len(jobs)):])
			if s.World.Jobs = strings.Join(less, ","); len(less) > 0 && x.try(s) {
				jobs = less
			} else {
				at += size
			}
		}
		if size == 1 || x.over() {
			return
		}
	}
}

// smaller takes away machines.
func (x *Shrinking) smaller() {
	for n := 1; n < x.best.World.Machines && !x.over(); n = n*3/2 + 1 {
		s := x.best
		s.World.Machines = n
		if x.try(s) {
			break
		}
	}
	for x.best.World.Machines > 1 {
		s := x.best
		s.World.Machines--
		if !x.try(s) {
			break
		}
	}
}

// faster makes the world as simple as it can be: what is said at once, what is
// stored at once.
func (x *Shrinking) faster() {
	if x.best.World.Slow {
		s := x.best
		s.World.Slow = false
		x.try(s)
	}
	if x.best.World.Cut != 0 {
		s := x.best
		s.World.Cut = 0
		x.try(s)
	}
	if x.best.World.Seed != 0 {
		s := x.best
		s.World.Seed = 0
		x.try(s)
	}
}
