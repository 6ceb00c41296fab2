package compile

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/lax"
	"github.com/musterhq/muster/schema/compile/trace"
	"github.com/musterhq/muster/schema/lazyregexp"
	"github.com/musterhq/muster/schema/valid"
	"github.com/musterhq/muster/schema/vendored"
)

const (
	moduleFile = "cue.mod/module.cue"
	// localModuleFile replaces modules by directories.
	localModuleFile = "cue.mod/local-module.cue"
	// SchemaDir is where a repository keeps its copy of the definitions.
	SchemaDir = lax.Dir
)

// maxDiagnostics bounds what is reported of one package.
const maxDiagnostics = 100

func isError(d schema.Diagnostic) bool { return d.Severity == schema.Error }

// firstOf is an error of a package as a whole; file is its first.
func firstOf(file string, rule schema.Rule, message string) schema.Diagnostic {
	return schema.Diagnostic{Severity: schema.Error, Rule: rule, Position: schema.Position{Path: file, Line: 1, Column: 1}, Message: message}
}

func withHint(d schema.Diagnostic, hint string) schema.Diagnostic {
	d.Hint = hint
	return d
}

// within reports whether data path a is b or lies in it.
func within(a, b string) bool {
	rest, ok := strings.CutPrefix(a, b)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// below reports whether directory a is b or lies below it.
func below(a, b string) bool { return b == "." || a == b || strings.HasPrefix(a, b+"/") }

var (
	identifier = lazyregexp.New(`^[_#]*[A-Za-z_$][A-Za-z0-9_$]*$`)
	decimal    = lazyregexp.New(`^(0|[1-9][0-9]{0,8})$`)
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
		case decimal.MatchString(s) && inList(at, i):
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

// inList reports whether a number in a data path is the index of an element, and no label: not the
// name of an object, nor a field of one.
func inList(at []string, i int) bool {
	return i > 2 || i > 0 && strings.HasPrefix(at[0], "_") || i == 2 && strings.HasPrefix(at[1], "#")
}

// position turns a position of CUE's into one of ours; the zero Position if it
// is not in a file.
func position(p token.Pos) schema.Position {
	if !p.IsValid() {
		return schema.Position{}
	}
	return schema.Position{Path: strings.TrimPrefix(p.Filename(), "/"), Line: p.Line(), Column: p.Column()}
}

// valueAt returns where a value is written: behind its label, also in a file of JSON or
// YAML.
func valueAt(v cue.Value) schema.Position {
	if f, ok := v.Source().(*ast.Field); ok && f.Value != nil && f.Value.Pos().IsValid() {
		return position(f.Value.Pos())
	}
	return position(v.Pos())
}

// inFile returns where a file of YAML or JSON has a value, the zero Position if none has.
func inFile(v cue.Value) schema.Position {
	for _, leaf := range trace.Leaves(v) {
		if pos := beginning(leaf); pos.Path != "" && !strings.HasSuffix(pos.Path, ".cue") {
			return pos
		}
	}
	return schema.Position{}
}

// beginning is valueAt, and of what a file has as a whole, which has no place, that of its first field.
func beginning(v cue.Value) schema.Position {
	pos := valueAt(v)
	if pos.Path != "" || v.IncompleteKind() != cue.StructKind {
		return pos
	}
	if it, err := v.Fields(); err == nil && it.Next() {
		if f, ok := it.Value().Source().(*ast.Field); ok {
			return position(f.Label.Pos())
		}
	}
	return pos
}

// clip cuts what a user wrote to what fits a line.
func clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxLabel {
		return s
	}
	return strings.ToValidUTF8(s[:maxLabel], "") + "…"
}

// standard are the packages of CUE's standard library.
var standard = []string{
	"crypto/ed25519", "crypto/hmac", "crypto/md5", "crypto/sha1", "crypto/sha256", "crypto/sha512",
	"encoding/base64", "encoding/csv", "encoding/hex", "encoding/json", "encoding/openapi", "encoding/toml", "encoding/yaml",
	"html", "list", "math", "math/bits", "net", "path", "regexp", "strconv", "strings", "struct",
	"text/tabwriter", "text/template", "time", "tool", "tool/cli", "tool/exec", "tool/file", "tool/http", "tool/os", "uuid",
}

// ignored reports whether CUE does not look at the file: hidden and underscored
// names, and files for tests and tools. Below cue.mod it looks at modules of others.
func ignored(p string) bool {
	p = strings.TrimPrefix(p, vendored.Dir+"/")
	for _, part := range strings.Split(p, "/") {
		if strings.HasPrefix(part, ".") || strings.HasPrefix(part, "_") || part == "cue.mod" {
			return true
		}
	}
	return strings.HasSuffix(p, "_test.cue") || strings.HasSuffix(p, "_tool.cue")
}

func dirOf(d schema.Diagnostic) string { return path.Dir(d.Path) }

// inPkg reports whether a path lies where vendored modules are.
func inPkg(name string) bool { return strings.HasPrefix(name, vendored.Dir+"/") }

// typeOf returns CUE's type of a literal.
func typeOf(literal string) string {
	switch {
	case literal == "null":
		return "null"
	case strings.HasPrefix(literal, "{"):
		return "struct"
	case literal == "true" || literal == "false":
		return "bool"
	case strings.HasPrefix(literal, `"`):
		return "string"
	case strings.HasPrefix(literal, "["):
		return "[...]"
	}
	return "int"
}

// isKind reports whether a definition is that of a kind.
func isKind(definition string) bool {
	return valid.Of(schema.Kind(strings.ToLower(strings.TrimPrefix(definition, "#")))) != nil
}

// isParameter reports whether a data path is not of an object's own data.
func isParameter(path cue.Path) bool {
	sels := path.Selectors()
	if len(sels) > 0 && valid.Of(schema.Kind(sels[0].String())) == nil {
		return true
	}
	return slices.ContainsFunc(sels, func(s cue.Selector) bool { return s.IsDefinition() })
}

// isType reports whether a data path is that of a definition, which parameters are declared with.
func isType(path cue.Path) bool {
	sels := path.Selectors()
	return len(sels) == 1 && sels[0].IsDefinition()
}

func definitionsIn(in *build.Instance) (out []string) {
	for _, f := range in.Files {
		for _, d := range f.Decls {
			if field, ok := d.(*ast.Field); ok && strings.HasPrefix(lax.Label(field), "#") {
				out = append(out, lax.Label(field))
			}
		}
	}
	return out
}

// ofField returns the data path of the field that is not allowed, if the text of an error says so of an element of it.
func ofField(text string, at []string) []string {
	for strings.HasSuffix(text, "field not allowed") && len(at) > 1 && decimal.MatchString(at[len(at)-1]) && inList(at, len(at)-1) {
		at = at[:len(at)-1]
	}
	return at
}

// branched returns the condition under which a definition has a field that it has not here, "" if there is none, and
// otherwise what the name is probably a misspelling of: of what the definition has, or else has under conditions.
func branched(a trace.Allowed, name string) (only, near string) {
	var others []string
	for _, b := range a.Branches {
		if b.Name == name {
			return b.If, ""
		}
		others = append(others, b.Name)
	}
	return "", cmp.Or(valid.Nearest(name, a.Fields), valid.Nearest(name, others), sameBeginning(name, a.Fields))
}

// sameBeginning returns the one of some names that begins as another one does, at the least for three quarters of that,
// as replicaCount of replicas; "" if there is none, or several do.
func sameBeginning(name string, names []string) (found string) {
	for _, n := range names {
		same := 0
		for same < min(len(n), len(name)) && n[same] == name[same] {
			same++
		}
		if same < leastSame || 4*same < 3*len(name) {
			continue
		}
		if found != "" {
			return ""
		}
		found = n
	}
	return found
}

// leastSame is how many bytes two names have in common at the least that begin alike.
const leastSame = 3

// hasWord reports whether a text has another one, with no letter or digit beside it.
func hasWord(text, word string) bool {
	beside := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
	for from := 0; ; {
		i := strings.Index(text[from:], word)
		if i < 0 {
			return false
		}
		before, _ := utf8.DecodeLastRuneInString(text[:from+i])
		after, _ := utf8.DecodeRuneInString(text[from+i+len(word):])
		if !beside(before) && !beside(after) {
			return true
		}
		from += i + 1
	}
}
