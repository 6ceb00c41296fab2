package compile

import (
	"bytes"
	"fmt"
	"path"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"cuelang.org/go/cue/parser"

	"github.com/musterhq/muster/schema"
)

// header is what the parent knows of a file: what is needed to say which other
// files its package depends on. The rest of the file is for the child.
type header struct {
	pkg     string // "" if there is no package clause, or none can be read
	imports []importSpec
	embeds  bool // the file may embed others
	err     *schema.Diagnostic
	policy  *schema.Position    // where the file's policies begin; nil if it has none; without a path
	silent  []schema.Diagnostic // warnings of what CUE leaves out silently; without a path, as err
}

// scan reads the header of a file. Its diagnostic has no path yet, since the
// same content may stand in several files.
func scan(data []byte, limit int) (h *header) {
	if d := scanText(data, limit); d != nil {
		h = &header{err: d}
		if bytes.Contains(data, []byte(policyField)) { // it must not be taken for one without
			h.policy = &schema.Position{Line: 1, Column: 1}
		}
		return h
	}
	defer func() {
		if p := recover(); p != nil {
			h = &header{err: fault(1, 1, schema.RuleRepository, fmt.Sprintf("the file cannot be read: %v", p))}
		}
	}()
	f, err := parser.ParseFile("-", data, parser.ImportsOnly)
	if f == nil {
		return &header{err: fault(1, 1, schema.RuleRepository, fmt.Sprintf("the file cannot be read: %v", err))}
	}
	h = &header{pkg: f.PackageName()}
	for spec := range f.ImportSpecs() {
		if p, err := strconv.Unquote(spec.Path.Value); err == nil {
			h.imports = append(h.imports, importSpec{p, spec.Path.Pos().Line(), spec.Path.Pos().Column()})
		}
	}
	h.policy = findPolicies(data)
	h.embeds, h.silent = schema.Embeds(data), withoutEffect(f, data)
	if h.pkg == "" && err == nil {
		h.err = fault(1, 1, schema.RuleRepository, "the file has no package clause, so CUE would ignore it")
		h.err.Hint = "begin it with the line: package " + packageHint
	}
	return h
}

// scanText returns what is wrong with the bytes of a file.
func scanText(data []byte, limit int) *schema.Diagnostic {
	if len(data) > limit {
		d := fault(1, 1, schema.RuleOutOfRange, fmt.Sprintf("the file has %d bytes, more than %d", len(data), limit))
		d.Hint = "split it"
		return d
	}
	line, start := 1, 0
	for i := 0; i < len(data); {
		if data[i] < utf8.RuneSelf {
			if data[i] == '\n' {
				line, start = line+1, i+1
			}
			i++
			continue
		}
		r, n := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && n == 1 {
			d := fault(line, i-start+1, schema.RuleRepository, "the file is not valid UTF-8")
			d.Hint = "save it as UTF-8"
			return d
		}
		i += n
	}
	return nil
}

func fault(line, column int, rule schema.Rule, message string) *schema.Diagnostic {
	return &schema.Diagnostic{Severity: schema.Error, Rule: rule, Position: schema.Position{Line: line, Column: column}, Message: message}
}

// packageHint is replaced by a name that suits the directory.
const packageHint = "NAME"

// badPath says what is wrong with the path of a file, "" if nothing is.
func badPath(p string) (rule schema.Rule, what string) {
	rule = schema.RuleRepository
	switch {
	case !utf8.ValidString(p):
		return rule, "the path is not valid UTF-8"
	case path.IsAbs(p) || path.Clean(p) != p || p == ".." || strings.HasPrefix(p, "../"):
		return rule, "the path is outside of the repository"
	case strings.ContainsFunc(p, func(r rune) bool { return !unicode.IsPrint(r) }):
		return rule, "the path has characters that cannot be printed"
	case p == moduleFile || ignored(p):
	case strings.ContainsAny(p, `\:*?"<>|@`):
		return rule, `the path has one of \ : * ? " < > | @, which CUE cannot import`
	case strings.Count(p, "/") > maxDirs:
		return schema.RuleLimit, fmt.Sprintf("the path is more than %d directories deep", maxDirs)
	}
	return "", ""
}

// maxDirs is how deep directories may be nested.
const maxDirs = 64
