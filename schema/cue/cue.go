// Package cue holds the CUE definitions of what a config repository may
// declare: #Cell, #Tenant, #Quota and #Job, each field with its unit, default,
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

import "embed"

//go:embed *.cue
var files embed.FS

// Files returns the definitions by file name. All belong to package muster.
func Files() map[string][]byte {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic("schema/cue: " + err.Error()) // embedded: cannot happen
	}
	m := make(map[string][]byte, len(entries))
	for _, e := range entries {
		b, err := files.ReadFile(e.Name())
		if err != nil {
			panic("schema/cue: " + err.Error())
		}
		m[e.Name()] = b
	}
	return m
}
