package valid

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// One mistake is one Problem: a required field under another name is not also
// missing. What follows finds which field was meant.

// firstOf returns the first field of an alias such as process.command; "" of
// one that is text.
func firstOf(alias string) string {
	if strings.Contains(alias, " ") {
		return ""
	}
	first, _, _ := strings.Cut(alias, ".")
	return first
}

// misplaced reports fields of m that hold what belongs in a sibling, such as
// tasks: {process: …} for task. It returns the names of both.
func (c *check) misplaced(path []string, r *Rule, m map[string]any) map[string]bool {
	meant := map[string]bool{}
	for _, f := range r.Fields {
		inner, ok := m[f.Name].(map[string]any)
		if !ok || len(inner) == 0 || f.Rule.Type == Struct || f.Rule.Type == Map {
			continue
		}
		i := slices.IndexFunc(r.Fields, func(g Field) bool {
			if _, there := m[g.Name]; there || g.Rule.Type != Struct {
				return false
			}
			for name := range inner {
				if !g.Rule.Has(name) {
					return false
				}
			}
			return true
		})
		if i < 0 {
			continue
		}
		g := r.Fields[i]
		meant[f.Name], meant[g.Name] = true, true
		c.add(Problem{
			Rule: schema.RuleUnknownField, Path: append(path, f.Name), Key: true, Message: fmt.Sprintf("%q has the fields of %q", f.Name, g.Name), Expected: f.Rule.String(),
			Hint: fmt.Sprintf("did you mean %s?", g.Name),
		})
	}
	return meant
}

// written returns the name under which m has a field: the former one with a warning.
func (c *check) written(path []string, f *Field, m map[string]any) string {
	if _, ok := m[f.Former]; !ok || f.Former == "" {
		return f.Name
	}
	former := slices.Concat(path, []string{f.Former})
	if _, ok := m[f.Name]; ok {
		c.add(Problem{
			Rule: schema.RuleConflict, Path: append(path, f.Name), Key: true, Beside: former,
			Message: fmt.Sprintf("is also set under its former name, %s", f.Former), Hint: fmt.Sprintf("remove one of them: %s", f.Replaced()),
		})
		return f.Name
	}
	if len(c.warnings) < maxProblems {
		c.warnings = append(c.warnings, Problem{
			Rule: schema.RuleDeprecated, Path: former, Key: true, Warning: true, Message: f.Replaced(), Hint: RewriteHint,
		})
	}
	return f.Former
}
