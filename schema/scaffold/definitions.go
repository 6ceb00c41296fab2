package scaffold

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"path"
	"regexp"
	"slices"
	"strings"

	_ "embed" // past.txt

	schemacue "github.com/musterhq/muster/schema/cue"
	"github.com/musterhq/muster/schema/lazyregexp"
)

// Dir is the directory of a repository that holds the definitions.
const Dir = "muster"

// The first line of each file that muster writes into Dir is a mark: the digest
// of what follows the line and the empty line after it. So a file says by
// itself whether anybody has edited it, wherever it was copied or merged to.
const markFormat = "// Written by muster; sha256 of the lines below: "

var mark = lazyregexp.New(`^` + regexp.QuoteMeta(markFormat) + `([0-9a-f]{64})\n\n?`)

// past has the digests of the definitions as they were written before there
// were marks, one in a line.
//
//go:embed past.txt
var past string

// Definitions returns the files of Dir as this binary writes them, by path from
// the root of the repository.
func Definitions() map[string][]byte {
	out := map[string][]byte{}
	for name, body := range schemacue.Files() {
		out[path.Join(Dir, name)] = slices.Concat([]byte(markFormat+digest(body)+"\n\n"), body)
	}
	return out
}

// State says how a file of Dir compares with the one that this binary writes.
type State string

// The states.
const (
	// Current is as this binary writes it.
	Current State = "current"
	// New is missing.
	New State = "new"
	// Outdated is as another version wrote it, and nobody has edited it.
	Outdated State = "outdated"
	// Obsolete is as another version wrote it; this one writes no such file.
	Obsolete State = "obsolete"
	// Kept has been edited, beginning from what this binary writes: there is
	// nothing to update.
	Kept State = "kept"
	// Edited has been edited, and not from what this binary writes, or nobody
	// knows from what: to update it is to lose the edits.
	Edited State = "edited"
)

// Change is one file of Dir.
type Change struct {
	Path  string
	State State
	Old   []byte // what is there, nil if nothing
	New   []byte // what this binary writes, nil if nothing
}

// Compare compares the files of a repository, by path, with what this binary
// writes. It looks only at files of Dir, and leaves out those that are the
// user's own: neither written by muster nor in the place of one that is. The
// changes are sorted by path. A line may end as it does on Windows.
func Compare(present map[string][]byte) []Change {
	ours := Definitions()
	var out []Change
	for name, want := range ours {
		c := Change{Path: name, State: New, New: want}
		if have, ok := present[name]; ok {
			c.Old, c.State = have, compare(have, want)
		}
		out = append(out, c)
	}
	for name, have := range present {
		if _, ok := ours[name]; ok || path.Dir(name) != Dir {
			continue
		}
		switch marked, body := split(have); {
		case marked == digest(body):
			out = append(out, Change{Path: name, State: Obsolete, Old: have})
		case marked != "":
			out = append(out, Change{Path: name, State: Edited, Old: have})
		}
	}
	slices.SortFunc(out, func(a, b Change) int { return strings.Compare(a.Path, b.Path) })
	return out
}

func compare(have, want []byte) State {
	marked, body := split(have)
	from, _ := split(want)
	is := digest(body)
	switch {
	case marked == from && is == from:
		return Current
	case marked == is, marked == "" && (is == from || wasWritten(is)):
		return Outdated
	case marked == from:
		return Kept
	}
	return Edited
}

// split takes a file apart into the digest in its mark, "" if it has none, and
// the rest, with line ends as muster writes them.
func split(file []byte) (marked string, body []byte) {
	file = bytes.ReplaceAll(file, []byte("\r\n"), []byte("\n"))
	m := mark.FindSubmatch(file)
	if m == nil {
		return "", file
	}
	return string(m[1]), file[len(m[0]):]
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func wasWritten(digest string) bool {
	return slices.Contains(strings.Fields(past), digest)
}

// Apply returns what a repository has to write and to remove, by path, so that
// its definitions are those of this binary; nil removes. The user's own files
// stay, and so do edits of what is current.
func Apply(changes []Change) map[string][]byte {
	out := map[string][]byte{}
	for _, c := range changes {
		if c.State != Current && c.State != Kept {
			out[c.Path] = c.New
		}
	}
	return out
}
