// Package packages keeps which machines hold which packages and images: their numbers, and the
// machines that hold what few do, which a search among some of the machines could miss.
//
// Held is shared with forks of the snapshot as layers are, and otherwise for one goroutine at a
// time.
package packages
