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

// Has reports whether name is a file of the definitions.
func Has(name string) bool {
	f, err := files.Open(name)
	if err != nil {
		return false
	}
	_ = f.Close()
	return true
}
