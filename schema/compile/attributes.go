package compile

import (
	"fmt"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/scanner"
	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
)

// withoutEffect reports attributes by which CUE silently leaves something out. An @if that never holds,
// since there are no tags, is a warning. An @embed in a file without @extern(embed) is an error: the
// objects that the data is for would be gone, and their tasks stopped. f is the head of the file.
func withoutEffect(f *ast.File, data []byte) (out []schema.Diagnostic) {
	say := func(severity schema.Severity, pos token.Pos, message, hint string) {
		d := fault(pos.Line(), pos.Column(), schema.RuleNoEffect, message)
		d.Severity, d.Hint = severity, hint
		out = append(out, *d)
	}
	extern, read := false, true
	for _, d := range f.Decls {
		if _, ok := d.(*ast.Package); ok {
			break
		}
		a, ok := d.(*ast.Attribute)
		if !ok {
			continue
		}
		switch key, body := a.Split(); key {
		case "extern":
			extern = extern || strings.Trim(strings.TrimSpace(body), `"`) == "embed"
		case "if":
			if len(body) > maxParsed {
				continue
			}
			if e, err := parser.ParseExpr("-", body); err == nil && !holds(e, 0) {
				read = false
				say(schema.Warning, a.Pos(), fmt.Sprintf("the file is not read: @if(%s) never holds, since nothing sets tags", body),
					"remove the line, and write what differs as data: in a directory of its own, or with if in CUE")
			}
		}
	}
	if extern || !read || !schema.Embeds(data) {
		return out
	}
	if at := firstEmbed(data); at.IsValid() {
		say(schema.Error, at, "@embed has no effect: the file does not begin with @extern(embed)", "write the line @extern(embed) above the package clause")
	}
	return out
}

// holds reports whether the expression of an @if holds without any tag.
func holds(e ast.Expr, depth int) bool {
	if depth > maxDepth {
		return true
	}
	switch x := e.(type) {
	case *ast.Ident:
		return false
	case *ast.ParenExpr:
		return holds(x.X, depth+1)
	case *ast.UnaryExpr:
		return x.Op != token.NOT || !holds(x.X, depth+1)
	case *ast.BinaryExpr:
		switch a, b := holds(x.X, depth+1), holds(x.Y, depth+1); x.Op {
		case token.LAND:
			return a && b
		case token.LOR:
			return a || b
		}
	}
	return true // CUE says what is wrong with it
}

// firstEmbed returns where a file, however large, embeds another first, token.NoPos if nowhere.
func firstEmbed(data []byte) token.Pos {
	var sc scanner.Scanner
	sc.Init(token.NewFile("-", -1, len(data)), data, func(token.Pos, string, []any) {}, 0)
	for range len(data) + 1 {
		switch pos, tok, text := sc.Scan(); {
		case tok == token.EOF:
			return token.NoPos
		case tok == token.ATTRIBUTE && strings.HasPrefix(text, "@embed("):
			return pos
		}
	}
	return token.NoPos
}
