package compile

import (
	"cmp"
	stderrors "errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/syntax"
)

const (
	// maxDiagnostics bounds what is reported of one package.
	maxDiagnostics = 100
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
}

// form is a form of mistake that explains others, or is explained by them.
type form int

const (
	plain           form = iota
	unusedImport         // an import that nothing uses
	badImport            // an import that cannot be resolved
	undefinedName        // a name that stands for nothing
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
	for field, d := range best {
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
		d.Hint = "it is required at " + d.Position.String()
		if d.Position = l.where.enclosing(at); !l.where.mine(d.Path) {
			d.Position = l.where.of(at[:min(len(at), 2)], true)
		}
	}
	if strings.Contains(d.Message, "field not allowed") {
		theirs = l.where.closedAt(e)
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

// within reports whether data path a is b or lies in it.
func within(a, b string) bool {
	rest, ok := strings.CutPrefix(a, b)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// below reports whether directory a is b or lies below it.
func below(a, b string) bool { return b == "." || a == b || strings.HasPrefix(a, b+"/") }

var (
	identifier = regexp.MustCompile(`^[_#]*[A-Za-z_$][A-Za-z0-9_$]*$`)
	decimal    = regexp.MustCompile(`^(0|[1-9][0-9]{0,8})$`)
)

// maxLabel is how much of one label a data path shows, in bytes.
const maxLabel = 100

// fieldPath writes a data path as CUE does: job."web-front".task.command[1].
func fieldPath(at []string) string {
	var b strings.Builder
	for i, s := range at {
		if u, err := strconv.Unquote(s); err == nil {
			s = u // CUE quotes labels in the paths of errors
		}
		switch {
		case i > 2 && decimal.MatchString(s):
			b.WriteString("[" + s + "]")
			continue
		case i > 0:
			b.WriteByte('.')
		}
		if len(s) > maxLabel {
			s = s[:maxLabel] + "…"
		}
		if identifier.MatchString(s) {
			b.WriteString(s)
		} else {
			b.WriteString(strconv.Quote(strings.ToValidUTF8(s, "\uFFFD")))
		}
	}
	return b.String()
}

// position turns a position of CUE's into one of ours; the zero Position if it
// is not in a file.
func position(p token.Pos) schema.Position {
	if !p.IsValid() {
		return schema.Position{}
	}
	return schema.Position{Path: strings.TrimPrefix(p.Filename(), "/"), Line: p.Line(), Column: p.Column()}
}
