// Package tournament finds the best of many candidates whose scores change one by one: the best
// of each block, and the best of the blocks. First come the blocks of the domains in which the
// fewest tasks of a job stay, whatever their scores.
//
// A Standing is for one goroutine at a time. The caller writes the scores and the tally, and
// says what changed.
package tournament
