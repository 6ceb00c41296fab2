package compile

import (
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/lax"
	"github.com/musterhq/muster/schema/lazyregexp"
	"github.com/musterhq/muster/schema/valid"
)

// cueWords finds the rule of an error of CUE's that no other code here explains. CUE's
// errors have no types, so their text has to do. The first that matches counts.
var cueWords = []struct {
	rule schema.Rule
	form *lazyregexp.Regexp
}{
	{schema.RuleMissingField, lazyregexp.New(`^required field`)},
	{schema.RuleInvalidValue, lazyregexp.New(`^(?:invalid value|.*invalid regexp)`)},
	{schema.RuleWrongType, lazyregexp.New(`arithmetic`)},
	{schema.RuleUndefined, lazyregexp.New(`index out of range`)},
	{schema.RuleImport, lazyregexp.New(`import|no package|@embed`)},
	{schema.RuleCycle, lazyregexp.New(`structural cycle`)},
	{schema.RuleRepository, lazyregexp.New(`package clause|definitions in`)},
}

// ruleOf returns the rule of an error that CUE words as text: RuleSyntax if nothing
// better is known.
func ruleOf(text string) schema.Rule {
	for _, w := range cueWords {
		if w.form.MatchString(text) {
			return w.rule
		}
	}
	return schema.RuleSyntax
}

var durationTrouble = lazyregexp.New(`^time: (missing unit|unknown unit|invalid duration)\b`)

// durationWords says what Go's time package says of a text that is no length of time; "" if the
// message is another one.
func durationWords(message string) string {
	m := durationTrouble.FindStringSubmatch(message)
	if m == nil {
		return ""
	}
	return map[string]string{"missing unit": "has no unit", "unknown unit": "has a unit that does not exist", "invalid duration": "is no length of time"}[m[1]]
}

// rankOf says how well errors of a format explain.
func rankOf(format string) int {
	switch {
	case strings.Contains(format, "empty disjunction"):
		return 4
	case strings.Contains(format, "mismatched types"):
		return 1
	case strings.Contains(format, "conflicting values"):
		return 2
	}
	return 0
}

// isField reports whether objects of any kind have a field of this name.
func isField(name string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(lax.Definitions())), func(n string) bool {
		r := valid.Of(schema.Kind(strings.ToLower(strings.TrimPrefix(n, "#"))))
		return r != nil && r.Has(name)
	})
}
