package compile

import (
	"io"

	"github.com/musterhq/muster/schema"
)

// WriteRequest sends a child a package of one file under the default limits.
func WriteRequest(w io.Writer, dir, name, text string) error {
	return writeRequest(w, request{
		Dir: dir, Limits: Limits{}.withDefaults(),
		Files: map[string][]byte{moduleFile: []byte("module: \"example.com/config@v0\"\nlanguage: version: \"v0.17.0\"\n"), dir + "/" + name: []byte(text)},
	})
}

// ExitOrphan is how a child ends whose parent is gone.
const ExitOrphan = exitOrphan

// ExitWall is how a child ends whose package takes too long.
const ExitWall = exitWall

// KeepRounds is for how many further trees a package is remembered.
const KeepRounds = keepRounds

// Exclude is exclude.
var Exclude = exclude

// Order returns the directories of a tree that are to be evaluated, in order.
func (c *Compiler) Order(tree schema.Tree) (dirs []string) {
	p, units, _ := plan(tree, c.known, c.cfg.Limits)
	b := &batch{c: c, p: p}
	b.turns = b.owners.turns(units)
	for _, u := range b.order(b.todo(units)) {
		dirs = append(dirs, u.dir)
	}
	return dirs
}

// Flights is how many evaluations go on, or wait to be taken, after a Compile that was cancelled.
func (c *Compiler) Flights() int { return len(c.flights) }

// Remembered is how many packages, and how many that Quick has left, are remembered.
func (c *Compiler) Remembered() (packages, slow int) { return len(c.cache), len(c.slow) }
