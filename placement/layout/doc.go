// Package layout holds the orders in which machines are looked at. A Column is what one
// attribute of machines is, its values numbered; a Layout is the order of all machines by a
// column, cut into blocks, and the ring along which a search goes that looks at some of
// them; Peaks let it skip what is full.
//
// Machines are slots: small numbers, that some may be missing of. A Layout is not changed
// once it is made, and may be read by any number of goroutines; a Column and Peaks are for
// one at a time.
package layout
