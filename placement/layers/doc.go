// Package layers holds lists and maps that a snapshot shares with its forks: to fork one
// costs nothing, and what is changed of it afterwards costs what changes. A Table is a
// list, an Index is a map.
//
// After a fork, the two sides may be used from different goroutines at a time; neither is
// safe for concurrent use by itself. Who shares with whom is not known here: Merge is
// called by the side that is left when nobody else shares what lies below it any more.
package layers
