package valid

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/musterhq/muster/schema"
)

// Problem is one mistake in the data of an object.
type Problem struct {
	// Path leads from the object to the value: field names, map keys and list
	// indices (as decimal numbers).
	Path []string
	// Key says that the name of the field is at fault, not its value.
	Key bool
	// Missing says that there is no such value: Path ends where it should be.
	Missing bool
	// Unnamed says that the value is one object where objects by name should be.
	Unnamed bool
	// Constrained says that the value is there and only constrained, not set.
	Constrained bool
	// Beside is the path of another value that it is about, nil for none.
	Beside []string
	// Warning says that the value is taken all the same.
	Warning bool

	Rule     schema.Rule
	Message  string
	Expected string
	Hint     string
	Image    string // as Diagnostic.Image
}

// problems are mistakes as they are found.
type problems []Problem

func (p *problems) add(found Problem) { *p = append(*p, found) }

// short returns s cut to what fits a line, and always valid UTF-8.
func short(s string) string {
	const most = 60
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= most {
		return s
	}
	cut := most
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// wholeNumber returns the number that a value is; false if it is none.
func wholeNumber(v any) (int64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	i, err := n.Int64()
	return i, err == nil
}
