// Package cue holds the CUE definitions of what a config repository may
// declare: #Cell, #Tenant, #Quota, #AllocSet, #Job and the rest, each field with its unit, default,
// bounds and an example, so that an editor shows them.
//
// In: nothing. Out: the text of the files that `muster init` writes into a
// repository as the ordinary package muster. Nothing here is evaluated:
// schema/compile does that, and schema/valid says the same rules in Go, since
// users may edit their copy. A test of schema/compile holds the two together.
//
// The package keeps no state and is safe for concurrent use. It never imports
// the CUE library.
package cue
