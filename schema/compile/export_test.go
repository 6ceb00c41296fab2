package compile

import "io"

// Confine is confine, for a process of its own.
var Confine = confine

// WriteRequest sends a child a package of one file under the default limits.
func WriteRequest(w io.Writer, dir, name, text string) error {
	return writeRequest(w, request{
		Dir: dir, Limits: Limits{}.withDefaults(),
		Files: map[string][]byte{moduleFile: []byte("module: \"example.com/config@v0\"\nlanguage: version: \"v0.17.0\"\n"), dir + "/" + name: []byte(text)},
	})
}

// ExitOrphan is how a child ends whose parent is gone.
const ExitOrphan = exitOrphan

// Crowd is crowd.
var Crowd = crowd
