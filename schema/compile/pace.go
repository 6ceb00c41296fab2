package compile

import "time"

// A master applies of a commit what takes little before what takes more, so that no owner waits for the packages of
// another one. How long a package takes nobody knows before it is evaluated: so each is given a little time, then
// those that need more a little more, and so on. One that has used its time is set aside while the
// others are evaluated, and not begun anew.

// pace is how long a batch waits for packages. The zero value waits for all as long as they take.
type pace struct {
	slice time.Duration // processor time of a package after which it is left for later
	share time.Duration // of all packages of an owner together that are done, where others wait for them
	// apiece is how many packages of an owner are left before the others of it are, untried.
	apiece int
	// parts is that it is of a part of a commit: also the packages that are known before to take longer count
	// for that, and when those that were left have used this much, the part ends.
	parts time.Duration
}

// sliceEvery is how often a batch looks whether a package has used its slice.
const sliceEvery = 25 * time.Millisecond

// maxTooMuch is how many packages of one owner may exceed the limits of a package before
// its further ones are not evaluated.
const maxTooMuch = 3

// quickPace is that of Quick: each package has a twentieth of its processor time.
func quickPace(l Limits) pace {
	return pace{slice: l.CPU / 20, share: l.CPU / 10, apiece: maxTooMuch}
}

// paces are those of the parts of a commit, before all of it. What a tenant changes is applied as one, so when one of
// its packages is left there is no hurry with the others.
func paces(l Limits) []pace {
	return []pace{
		{slice: shortest(l), share: l.CPU / 10, apiece: 1, parts: 2 * shortest(l)},
		{slice: l.CPU / 20, share: l.CPU / 4, apiece: 1, parts: l.CPU / 10},
		{slice: l.CPU / 4, share: l.CPU / 2, apiece: 1, parts: l.CPU / 2},
	}
}

// shortest is the shortest slice: what took less is begun anew rather than kept.
func shortest(l Limits) time.Duration { return l.CPU / 100 }
