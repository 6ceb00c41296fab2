// Package terms says in plain words what an expression of CUE allows, and finds what a
// check in a library looks at: nobody needs to know CUE to read of a mistake.
//
// In: syntax. Out: words, bounded in length. It evaluates nothing, keeps nothing, and all
// of it is safe for concurrent use.
package terms
