// Package experiment answers the questions of Borg's evaluation (Verma et al., EuroSys 2015,
// section 5) for muster: what would it cost to run the work of a cell in another way?
//
// In: a question by its name, and cells, made up or of a trace. Out: a Result for people, for
// JSON and for a plot: how many machines the work of each cell needs as it is and in the other
// way, by compaction with several orders of machines; or how long its tasks take to be placed.
// What packs and places is package placement, and nothing else.
//
// It does no I/O. The clock is an argument, and only the question about time reads it. Cells
// are packed beside each other, each in a goroutine of its own; a Result does not depend on that.
package experiment
