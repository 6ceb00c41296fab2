package main

import (
	"regexp"

	"github.com/musterhq/muster/schema"
)

// rule is a kind of mistake: its id is stable, so that a tool can count, filter
// and suppress by it.
type rule struct {
	ID, Short string
	match     *regexp.Regexp
}

// ruleTable is searched from the top. Its ids are never renamed; a new one may
// take over messages of the last.
var ruleTable = []rule{
	{"quota", "a job asks for more than its owner's quota, or has none", regexp.MustCompile(`over quota|has no quota|quota at production`)},
	{"ownership", "something is declared where its owner may not declare it", regexp.MustCompile(`may not declare|belongs to (no )?tenant|no tenant is declared|may not name`)},
	{"duplicate", "an object is declared twice", regexp.MustCompile(`is declared by two packages|has the name of a job`)},
	{"inherited", "an object of a directory above is changed", regexp.MustCompile(`^changes an object of the directory above`)},
	{"dependency", "a package that this one depends on does not compile", regexp.MustCompile(`^depends on .* which does not compile`)},
	{"unsupported", "a field or kind that the cell does not have yet", regexp.MustCompile(`not supported yet`)},
	{"unknown-field", "a field that does not exist", regexp.MustCompile(`^unknown field|^field .* is not in the definition|has the fields of`)},
	{"missing-field", "a required field is missing", regexp.MustCompile(`^required field|^says not how`)},
	{"unknown-kind", "a top-level field that is no kind of object", regexp.MustCompile(`^unknown kind|stands outside of any job|has no name$|one level too deep`)},
	{"out-of-range", "a number or a length is out of bounds", regexp.MustCompile(`is out of (range|bounds)|has \d+ (elements|entries|bytes)|is not valid:|is not an integer|bytes together|is not a whole number`)},
	{"invalid-name", "a name or key that is not allowed", regexp.MustCompile(`^invalid (name|key)|in quotes$|the name is a number|is built in|has a number for a name`)},
	{"invalid-value", "a value that is not allowed", regexp.MustCompile(`^(unknown|invalid) value|is also element|^is empty$|invalid regexp`)},
	{"no-effect", "fields that do not go together", regexp.MustCompile(`^the operator ".*" (wants|takes)|is no version$|would have no effect$|has no effect( with .*)?$|has no effect: its? |^a job of kind|thousandths of each|are no whole cores$|has no slack|is never oversold|needs no quota|is not after from|in its oversellPercent$|which nobody can reach$|is a file too$|for temporary files$|with writable: true$|^files belong to|^no task has capabilities$|^the filter of system calls|namespace of its own$|^an alloc (runs nothing|has no)|^allocs have no network|^an alloc set has no kind|^a job names the alloc set|^a job in an alloc set has|more than an alloc of|is declared no more|has no ".*" beside it$|is also the number of port|there is no other mode$|is said to the master`)},
	{"conflict", "a field has two values", regexp.MustCompile(`^is both |^is .* here and .* at |lists of different lengths`)},
	{"not-set", "a field is constrained and not set", regexp.MustCompile(`is only constrained|not decided|which is not set|set it$|sets nothing$|is joined with`)},
	{"wrong-type", "a value of a wrong type", regexp.MustCompile(`^is (the (string|number|boolean)|a (list|struct)|null|bytes|not a struct)|does not join|are not joined|arithmetic|which is of type|^a \w+ is not a `)},
	{"undefined", "a reference to what does not exist", regexp.MustCompile(`is not defined|^there is no [^p]|is not set for this task|is not replaced here|is not a function|no (port|cell|priority|allocset) .* is declared|index out of range`)},
	{"import", "an import that does not work", regexp.MustCompile(`import|^there is no package|no package|of another name$|in a circle|is not a package of this repository|@embed`)},
	{"cycle", "a value depends on itself", regexp.MustCompile(`depends on itself|structural cycle`)},
	{"limit", "a package takes more than the compiler allows", regexp.MustCompile(`evaluation |more than \d+|nested|split it|levels deep`)},
	{"repository", "the repository cannot be read as one", regexp.MustCompile(`module|repository|definitions in|package clause|package \w+, but|the path |UTF-8|symbolic|submodule|the file (has|cannot)`)},
	{"syntax", "the file is not CUE", regexp.MustCompile(`.`)},
}

// ruleOf returns the rule that a diagnostic is of.
func ruleOf(d schema.Diagnostic) rule {
	for _, r := range ruleTable {
		if r.match.MatchString(d.Message) {
			return r
		}
	}
	return ruleTable[len(ruleTable)-1]
}
