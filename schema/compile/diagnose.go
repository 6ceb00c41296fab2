package compile

import (
	"cmp"
	stderrors "errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/valid"
)

const (
	// maxDiagnostics bounds what is reported of one package.
	maxDiagnostics = 100
	// maxFound bounds what is looked at: a mistake in a comprehension shows in
	// each of thousands of objects, and is then folded.
	maxFound = 1000
)

// diagnose turns CUE's errors into diagnostics: one for each data path, the
// one that says most.
func diagnose(l *loaded) []schema.Diagnostic {
	type ranked struct {
		rank int
		schema.Diagnostic
	}
	best := map[string]ranked{}
	syntax := map[string]bool{} // files with a syntax error: the first counts
	var out []schema.Diagnostic
	for _, e := range l.errs {
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
		deeper := func(other string) bool { return other != field && within(other, field) }
		covered := false
		for other := range best {
			covered = covered || deeper(other)
		}
		if !covered {
			out = append(out, d.Diagnostic)
		}
	}
	return out
}

// diagnostic turns one error into a diagnostic and says how well it explains:
// lower ranks do better.
func (l *loaded) diagnostic(e errors.Error) (d schema.Diagnostic, rank int) {
	at := e.Path()
	if !l.built {
		at = nil // of an import: not data
	}
	d = schema.Diagnostic{Severity: schema.Error, Field: fieldPath(at), Message: errorText(e)}
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
	if d.Path == "" {
		d.Position = l.where.of(at, false)
	}
	explain(l, &d, theirs)
	return d, rank
}

var (
	unresolved = regexp.MustCompile(`^reference "([^"]*)" not found$`)
	undefined  = regexp.MustCompile(`^undefined field: (#[A-Za-z0-9_]+)$`)
)

// explain adds what CUE's message leaves out.
func explain(l *loaded, d *schema.Diagnostic, others []schema.Position) {
	has := func(s string) bool { return strings.Contains(d.Message, s) }
	switch {
	case has("conflicting values") && len(others) > 0:
		other := others[0]
		if dir := path.Dir(other.Path); dir != l.dir && below(l.dir, dir) {
			d.Message = fmt.Sprintf("changes an object of the directory above, declared at %s: %s", other, d.Message)
			d.Hint = "an object belongs to one directory: change it there, or give this package another name"
			return
		}
		d.Hint = "the other value is at " + other.String()
	case has("incomplete value"), has("non-concrete value"):
		d.Expected = "a concrete value"
	case unresolved.MatchString(d.Message):
		name := unresolved.FindStringSubmatch(d.Message)[1]
		if name == SchemaDir {
			module, _, _ := strings.Cut(l.inst.Module, "@")
			d.Hint = fmt.Sprintf("add: import %q", module+"/"+SchemaDir)
		} else if name != "" && !strings.ContainsAny(name, "#_.") {
			d.Hint = fmt.Sprintf("text is written in quotes: %q", name)
		}
	case undefined.MatchString(d.Message):
		names := slices.Sorted(maps.Keys(definitions()))
		if near := valid.Nearest(undefined.FindStringSubmatch(d.Message)[1], names); near != "" {
			d.Hint = fmt.Sprintf("did you mean %s?", near)
		}
	case has("field not allowed"):
		d.Hint = "a definition that this value is unified with does not have the field"
	case has("imported and not used"):
		d.Hint = "remove the import"
	case has("import cycle"), has("cannot find package"), has("cannot find module"):
		d.Hint = "only packages of this repository and of CUE's standard library can be imported"
		if has("cycle") {
			d.Hint = "move what both need to a third package"
		}
	case !l.built:
		d.Hint = l.syntaxHint(d)
	}
}

var byteUnit = regexp.MustCompile(`[0-9][KMGTP]i?B`)

// syntaxHint says what a syntax error probably is.
func (l *loaded) syntaxHint(d *schema.Diagnostic) string {
	lines := strings.Split(string(l.req.Files[d.Path]), "\n")
	line := func(n int) string {
		if n < 1 || n > len(lines) {
			return ""
		}
		return strings.TrimSpace(lines[n-1])
	}
	switch {
	case strings.Contains(d.Message, "found 'EOF'"):
		return "a brace, bracket or parenthesis is not closed"
	case strings.HasPrefix(line(d.Line), "- "):
		return "a list is written in brackets: [\"a\", \"b\"]"
	case strings.Contains(d.Message, "expected label or ':'") && strings.Contains(line(d.Line)+line(d.Line-1), " = "):
		return "a field is written NAME: VALUE, without ="
	case strings.Contains(d.Message, "missing ','") && byteUnit.MatchString(line(d.Line)):
		return "a number of bytes is written 64Mi or 64M, without B"
	case strings.Contains(d.Message, "missing ','"):
		return "fields on one line are separated by commas"
	}
	return ""
}

var rooted = regexp.MustCompile(`(^|[ ("])/([^ "]*\.cue)`)

// errorText returns the message of an error without path and position, in one
// line.
func errorText(e errors.Error) string {
	format, args := e.Msg()
	for strings.Contains(format, "import failed") { // says nothing: what it wraps does
		var inner errors.Error
		if !stderrors.As(stderrors.Unwrap(e), &inner) {
			break
		}
		e = inner
		format, args = e.Msg()
	}
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

// tidy sorts diagnostics and folds those that say the same of the same place:
// a mistake within a comprehension shows in every object that it makes.
func tidy(diags []schema.Diagnostic) []schema.Diagnostic {
	slices.SortStableFunc(diags, func(a, b schema.Diagnostic) int { return a.Compare(b) })
	var out []schema.Diagnostic
	for _, d := range diags {
		same := func(o schema.Diagnostic) bool { return o.Position == d.Position && o.Message == d.Message }
		if len(out) < maxDiagnostics && !slices.ContainsFunc(out, same) {
			out = append(out, d)
		}
	}
	return out
}

// covers reports whether a says what b says.
func covers(a, b schema.Diagnostic) bool {
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
