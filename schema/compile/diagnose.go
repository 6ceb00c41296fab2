package compile

import (
	"cmp"
	stderrors "errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"cuelang.org/go/cue/errors"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/syntax"
)

const (
	// maxFound bounds what is looked at: a mistake in a comprehension shows in
	// each of thousands of objects, and is then folded.
	maxFound = 1000
)

// mistake is a diagnostic in the making, with what is needed to find out which mistake
// follows from which.
type mistake struct {
	schema.Diagnostic
	form form
	// about is the import path of unusedImport and badImport, the name of
	// undefinedName, and the other data path of selfCycle.
	about string
	// word is, of undefinedName, how many bytes of the line the text has that the name
	// begins, where that is text without quotes; else 0.
	word int
	// undecided is set where CUE only says that something has no value yet.
	undecided bool
}

// form is a form of mistake that explains others, or is explained by them.
type form int

const (
	plain           form = iota
	unusedImport         // an import that nothing uses
	badImport            // an import that cannot be resolved
	undefinedName        // a name that stands for nothing
	unusedName           // a let clause that nothing uses
	selfCycle            // a field that depends on itself
	missingField         // a required field that is not there
	closedField          // a field that a definition of the repository's own does not have
	wrongDefinition      // an object that is joined with the definition of another kind
)

// diagnose turns CUE's errors into mistakes: one for each data path, the one that
// says most.
func diagnose(l *loaded, errs []errors.Error) []mistake {
	type ranked struct {
		rank int
		mistake
	}
	best := map[string]ranked{}
	syntax := map[string]bool{} // files with a syntax error: the first counts
	var out []mistake
	for _, e := range errs {
		d, rank := l.diagnostic(e)
		if d.Field == "" {
			if !l.built && syntax[d.Path] {
				continue
			}
			syntax[d.Path] = true
			out = append(out, d)
			continue
		}
		if old, ok := best[d.Field]; !ok || rank < old.rank {
			best[d.Field] = ranked{rank, d}
		}
	}
	for _, field := range slices.Sorted(maps.Keys(best)) {
		d := best[field]
		if name, ok := strings.CutPrefix(d.Message, "required field missing: "); ok && slices.ContainsFunc(slices.Collect(maps.Keys(best)), func(f string) bool {
			return strings.HasSuffix(f, "."+name)
		}) {
			continue // said of the field itself
		}
		deeper := func(other string) bool { return other != field && within(other, field) }
		covered := false
		for other := range best {
			covered = covered || deeper(other)
		}
		if !covered {
			out = append(out, d.mistake)
		}
	}
	return out
}

// diagnostic turns one error into a mistake and says how well it explains: lower
// ranks do better.
func (l *loaded) diagnostic(e errors.Error) (d mistake, rank int) {
	at := e.Path()
	if !l.built {
		at = nil // not data
		if inner := imported(e); position(inner.Position()).Path != "" {
			e = inner
		}
	}
	text := errorText(e)
	d.Diagnostic = schema.Diagnostic{Severity: schema.Error, Rule: ruleOf(text), Field: fieldPath(at), Message: text}
	d.undecided = undecidedText.MatchString(text)
	if target := unresolvable.FindStringSubmatch(text); target != nil {
		d.form, d.about = badImport, target[1]
	}
	format, _ := e.Msg()
	mine, theirs := l.where.ofError(e, at)
	d.Position = mine
	switch {
	case strings.Contains(format, "empty disjunction"):
		rank = 4
	case strings.Contains(format, "mismatched types"):
		rank = 1
	case strings.Contains(format, "conflicting values"):
		rank = 2
	}
	if mine.Path == "" || !l.where.mine(mine.Path) {
		rank += 5
	}
	if pos := position(e.Position()); pos.Path != "" && !l.built && syntax.IsError(d.Message) {
		d.Position = pos
	}
	if d.Path == "" {
		d.Position = l.where.of(at, false)
	}
	if strings.Contains(d.Field, "[]\"") { // of a comprehension or a pattern: no data path
		d.Field = ""
	}
	if d.Message == "field is required but not present" && len(at) > 0 {
		name := strings.Trim(at[len(at)-1], `"`)
		d.form, d.Rule, d.Message = missingField, schema.RuleMissingField, fmt.Sprintf("required field %q is missing", name)
		if home := l.where.required(e); home.Path != "" {
			d.Hint = "it is required at " + home.String()
		}
		if d.Position = l.where.enclosing(at); !l.where.mine(d.Path) {
			d.Position = l.where.of(at[:min(len(at), 2)], true)
		}
	}
	if strings.Contains(d.Message, "field not allowed") {
		theirs = l.where.closedAt(e)
	}
	if l.checked(&d, at, e) {
		return d, rank - 10 // whoever wrote the check knows best
	}
	if strings.Contains(format, "mismatched types") && l.sayValue(&d, at) {
		return d, rank
	}
	explain(l, &d, theirs)
	return d, rank
}

// imported returns what went wrong in the package that an import failed for:
// the import itself is right.
func imported(e errors.Error) errors.Error {
	for {
		format, _ := e.Msg()
		var inner errors.Error
		if !strings.Contains(format, "import failed") || !stderrors.As(stderrors.Unwrap(e), &inner) {
			return e
		}
		e = inner
	}
}

var rooted = regexp.MustCompile(`(^|[ ("])/([^ "]*\.cue)`)

// errorText returns the message of an error without path and position, in one
// line.
func errorText(e errors.Error) string {
	e = imported(e)
	format, args := e.Msg()
	s := fmt.Sprintf(format, args...)
	if cause := stderrors.Unwrap(e); cause != nil && !strings.Contains(s, cause.Error()) {
		s = strings.TrimPrefix(s+": "+cause.Error(), ": ")
	}
	if s == "" {
		s = e.Error()
	}
	s = strings.Join(strings.Fields(strings.ToValidUTF8(s, "\uFFFD")), " ")
	s = rooted.ReplaceAllString(s, "$1$2") // the root is the repository's
	const most = 300
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return cmp.Or(s, "unknown error")
}

// tidy sorts mistakes and folds those that say the same of the same place:
// a mistake within a comprehension shows in every object that it makes.
func tidy(found []mistake) []schema.Diagnostic {
	slices.SortStableFunc(found, func(a, b mistake) int { return a.Compare(b.Diagnostic) })
	var kept []mistake
	for _, d := range found {
		same := func(o mistake) bool { return o.Position == d.Position && o.Message == d.Message }
		circle := func(o mistake) bool { return d.form == selfCycle && o.form == selfCycle && d.about == o.Field }
		if len(kept) < maxDiagnostics && !slices.ContainsFunc(kept, same) && !slices.ContainsFunc(kept, circle) {
			kept = append(kept, d)
		}
	}
	out := make([]schema.Diagnostic, len(kept))
	for i := range kept {
		out[i] = kept[i].Diagnostic
	}
	return out
}

// covers reports whether a says what b says.
func covers(a, b mistake) bool {
	if b.Field == "" || a.Field == "" {
		return a.Position == b.Position
	}
	return a.Position == b.Position || within(a.Field, b.Field) || within(b.Field, a.Field)
}
