package schema

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"
)

// The labels that every job has beside its own, whose keys therefore never
// begin with OwnLabels.
const (
	OwnLabels = "muster/"
	LabelUser = OwnLabels + "user"
	LabelJob  = OwnLabels + "job"
	LabelKind = OwnLabels + "kind"
	LabelBand = OwnLabels + "band"
)

// Selector picks by labels. It is a list of requirements, all of which must
// hold; the zero Selector has none and picks everything. The grammar is that of
// Kubernetes' label selectors:
//
//	tier=front        the label is there with this value (also ==)
//	tier!=front       it is absent or has another value
//	tier in (a,b)     it is there with one of these values
//	tier notin (a,b)  it is absent or has none of these values
//	tier              it is there
//	!tier             it is absent
//
// Requirements are joined by commas. A value that has other characters than
// letters, digits and . _ - / stands in double quotes, in which \ takes the next
// character as it is. Safe for concurrent use.
type Selector struct {
	requirements []requirement
}

// requirement is one term of a selector: whether the label's value is among
// values; with none, whether the label is there at all.
type requirement struct {
	key    string
	values []string // nil: any
	negate bool
}

// ParseSelector parses a selector. The error names the column, counted from 1 in
// characters, and what was expected there.
func ParseSelector(text string) (Selector, error) {
	p := selectorParser{text: text}
	var s Selector
	for {
		r, err := p.requirement()
		if err != nil {
			return Selector{}, err
		}
		s.requirements = append(s.requirements, r)
		if p.end() {
			return s, nil
		}
		if !p.take(",") {
			return Selector{}, p.want("a comma and another requirement, or the end")
		}
	}
}

// Empty reports whether s picks everything.
func (s Selector) Empty() bool { return len(s.requirements) == 0 }

// Matches reports whether s picks what has these labels.
func (s Selector) Matches(labels map[string]string) bool {
	for _, r := range s.requirements {
		v, ok := labels[r.key]
		if ok && r.values != nil {
			ok = slices.Contains(r.values, v)
		}
		if ok == r.negate {
			return false
		}
	}
	return true
}

// About reports whether s has a requirement on a label.
func (s Selector) About(key string) bool {
	return slices.ContainsFunc(s.requirements, func(r requirement) bool { return r.key == key })
}

// Wanted returns what must be there for s to pick something: the key of a label, and the
// values of which it has one; any if values is nil. What must be absent is left out. So an
// index by labels finds candidates for Matches. The values are not to be changed.
func (s Selector) Wanted() iter.Seq2[string, []string] {
	return func(yield func(string, []string) bool) {
		for _, r := range s.requirements {
			if !r.negate && !yield(r.key, r.values) {
				return
			}
		}
	}
}

// String returns a text that parses to s; "" for the zero Selector.
func (s Selector) String() string {
	terms := make([]string, 0, len(s.requirements))
	for _, r := range s.requirements {
		terms = append(terms, r.String())
	}
	return strings.Join(terms, ",")
}

func (r requirement) String() string {
	values := make([]string, 0, len(r.values))
	for _, v := range r.values {
		values = append(values, quoteLabel(v))
	}
	not := map[bool]string{true: "!"}[r.negate]
	switch len(values) {
	case 0:
		return not + r.key
	case 1:
		return r.key + not + "=" + values[0]
	}
	return r.key + map[bool]string{false: " in ", true: " notin "}[r.negate] + "(" + strings.Join(values, ",") + ")"
}

func quoteLabel(v string) string {
	if v != "" && strings.IndexFunc(v, func(c rune) bool { return !labelRune(c) }) < 0 {
		return v
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v) + `"`
}

// labelRune reports whether c may stand in a key, and in a value without quotes.
func labelRune(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-/", c)
}

// selectorParser is ParseSelector at work.
type selectorParser struct {
	text string
	at   int // bytes that are parsed
}

// want returns the error that something else was expected at this place.
func (p *selectorParser) want(what string) error {
	column := utf8.RuneCountInString(p.text[:p.at]) + 1
	return fmt.Errorf("selector %q, column %d: want %s", p.text, column, what)
}

func (p *selectorParser) space() {
	p.at = len(p.text) - len(strings.TrimLeft(p.text[p.at:], " \t"))
}

// end reports whether there is nothing more.
func (p *selectorParser) end() bool {
	p.space()
	return p.at == len(p.text)
}

// take takes a sign if it comes next.
func (p *selectorParser) take(sign string) bool {
	p.space()
	if !strings.HasPrefix(p.text[p.at:], sign) {
		return false
	}
	p.at += len(sign)
	return true
}

// word takes what has only characters of keys; "" if that is nothing.
func (p *selectorParser) word() string {
	p.space()
	rest := p.text[p.at:]
	n := strings.IndexFunc(rest, func(c rune) bool { return !labelRune(c) })
	if n < 0 {
		n = len(rest)
	}
	p.at += n
	return rest[:n]
}

func (p *selectorParser) requirement() (requirement, error) {
	r := requirement{negate: p.take("!")}
	if r.key = p.word(); r.key == "" {
		return r, p.want("the key of a label, such as tier=front")
	}
	if r.negate { // of existence
		return r, nil
	}
	switch {
	case p.take("!="):
		r.negate = true
	case p.take("=="), p.take("="):
	default:
		return p.set(r)
	}
	v, err := p.value()
	r.values = []string{v}
	return r, err
}

// set goes on with a key that no sign of equality follows.
func (p *selectorParser) set(r requirement) (requirement, error) {
	p.space()
	before := p.at
	switch p.word() {
	case "":
		return r, nil
	case "in":
	case "notin":
		r.negate = true
	default:
		p.at = before
		return r, p.want("=, !=, in (…), notin (…), a comma or the end")
	}
	if !p.take("(") {
		return r, p.want("values in brackets, such as (a,b)")
	}
	for {
		v, err := p.value()
		if err != nil {
			return r, err
		}
		r.values = append(r.values, v)
		if p.take(")") {
			return r, nil
		}
		if !p.take(",") {
			return r, p.want("a comma or a closing bracket")
		}
	}
}

// value takes a word or a quoted string.
func (p *selectorParser) value() (string, error) {
	if !p.take(`"`) {
		if w := p.word(); w != "" {
			return w, nil
		}
		return "", p.want(`a value; the empty one is ""`)
	}
	var b strings.Builder
	for escaped := false; p.at < len(p.text); {
		c, n := utf8.DecodeRuneInString(p.text[p.at:])
		p.at += n
		switch {
		case !escaped && c == '"':
			return b.String(), nil
		case !escaped && c == '\\':
			escaped = true
		default:
			b.WriteString(p.text[p.at-n : p.at])
			escaped = false
		}
	}
	return "", p.want("a closing quote")
}
