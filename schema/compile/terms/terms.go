package terms

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/format"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"
)

const (
	// maxDepth bounds the walk through nested expressions.
	maxDepth = 100
	// maxText is how much of what somebody wrote is shown, in bytes.
	maxText = 100
	// maxListed is how many alternatives are listed.
	maxListed = 12
)

// Alternatives is what a field may be.
type Alternatives struct {
	// Want says it in words: "front" or "back"; an integer (2 unless it is set).
	Want string
	// Words are the alternatives that are text, without quotes.
	Words []string
}

// Of returns the alternatives that an expression gives, false if it gives none: it is
// one value, a struct, or refers to what is elsewhere.
func Of(e ast.Expr) (a Alternatives, ok bool) {
	var all []ast.Expr
	for _, e := range split(e, token.OR, 0) {
		if listed := listed(e); listed != nil {
			all = append(all, listed...)
		} else {
			all = append(all, e)
		}
	}
	var said, preferred []string
	for _, e := range all {
		e, isDefault := unmarked(e)
		if isError(e) {
			continue // says why, and is no value
		}
		text := words(e, 0)
		if lit, isLit := strip(e).(*ast.BasicLit); isLit && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil {
				a.Words = append(a.Words, s)
			}
		}
		if isDefault && !isLiteralAmong(e, all) {
			preferred = append(preferred, text)
			continue
		}
		if !slices.Contains(said, text) {
			said = append(said, text)
		}
	}
	if len(said) == 0 || len(all) == 1 && !limits(e) {
		return Alternatives{}, false
	}
	a.Want = list(said)
	preferred = slices.DeleteFunc(preferred, func(p string) bool { // a name within a library says nothing
		return slices.Contains(said, p) || strings.Contains(p, "#") && !strings.HasPrefix(p, `"`)
	})
	if len(preferred) > 0 {
		a.Want += fmt.Sprintf(" (%s unless it is set)", list(preferred))
	}
	return a, true
}

// AreLiterals reports whether all alternatives of an expression are texts and numbers.
func AreLiterals(e ast.Expr) bool {
	return !slices.ContainsFunc(split(e, token.OR, 0), func(e ast.Expr) bool {
		e, _ = unmarked(e)
		_, isLiteral := strip(e).(*ast.BasicLit)
		return !isLiteral
	})
}

// listed returns the alternatives of or([A, B]).
func listed(e ast.Expr) []ast.Expr {
	c, ok := strip(e).(*ast.CallExpr)
	if !ok || len(c.Args) != 1 {
		return nil
	}
	id, isIdent := c.Fun.(*ast.Ident)
	if l, isList := c.Args[0].(*ast.ListLit); isList && isIdent && id.Name == "or" && !slices.ContainsFunc(l.Elts, func(e ast.Expr) bool { _, several := e.(*ast.Comprehension); return several }) {
		return l.Elts
	}
	return nil
}

// isLiteralAmong reports whether a default is one of several values, so that it is listed
// with them; a default beside a type is only what the field is without a value.
func isLiteralAmong(e ast.Expr, all []ast.Expr) bool {
	for _, other := range all {
		other, _ := unmarked(other)
		if limits(other) {
			return false
		}
	}
	return !limits(e)
}

// Say returns the text of an expression in words; the text itself, shortened, if it does
// not parse.
func Say(text string) string {
	e, err := parser.ParseExpr("-", text)
	if err != nil {
		return Clip(text)
	}
	return SayExpr(e)
}

// SayExpr returns an expression in words.
func SayExpr(e ast.Expr) string {
	if a, ok := Of(e); ok {
		return a.Want
	}
	return words(e, 0)
}

// list joins alternatives.
func list(all []string) string {
	more := ""
	if len(all) > maxListed {
		more = fmt.Sprintf(" or %d others", len(all)-maxListed)
		all = all[:maxListed]
	}
	last := len(all) - 1
	if last < 1 || more != "" {
		return strings.Join(all, ", ") + more
	}
	return strings.Join(all[:last], ", ") + " or " + all[last]
}

// names are types in words.
var names = map[string]string{
	"int": "an integer", "string": "text", "bool": "true or false", "number": "a number", "float": "a number with a decimal point", "bytes": "bytes",
	"list": "a list", "struct": "a struct", "uint": "an integer of at least 0", "_": "any value", "null": "null",
}

// isType reports whether an expression is the name of a type.
func isType(e ast.Expr) bool {
	id, ok := strip(e).(*ast.Ident)
	return ok && names[id.Name] != ""
}

// Limits reports whether an expression says what a value may be, and not which it is.
func Limits(e ast.Expr) bool {
	if u := strip(e); u != nil {
		if b, ok := u.(*ast.BinaryExpr); ok && b.Op == token.OR && AreLiterals(b) {
			return true
		}
	}
	return limits(e)
}

// limits reports whether an expression says what a value may be, and not which it is.
func limits(e ast.Expr) bool {
	switch x := strip(e).(type) {
	case *ast.Ident:
		return isType(x)
	case *ast.UnaryExpr:
		return bounds[x.Op] != ""
	case *ast.BinaryExpr:
		return (x.Op == token.AND || x.Op == token.OR) && (limits(x.X) || limits(x.Y))
	case *ast.ListLit:
		return slices.ContainsFunc(x.Elts, func(e ast.Expr) bool { _, open := e.(*ast.Ellipsis); return open || limits(e) })
	case *ast.StructLit:
		return true
	case *ast.CallExpr:
		_, ok := call(x)
		return ok
	case *ast.SelectorExpr:
		return validators[Text(x)] != ""
	}
	return false
}

// validators are those of CUE's standard library that take no argument, in words.
var validators = map[string]string{
	"time.Duration": `a duration, such as "500ms" or "1m30s"`, "time.Time": `a time, such as "2027-04-01T00:00:00Z"`,
	"net.IP": "an IP address", "net.IPv4": "an IPv4 address", "net.IPv6": "an IPv6 address", "net.IPCIDR": `a range of IP addresses, such as "10.0.0.0/8"`,
	"net.FQDN": "a host name", "net.AbsURL": "a whole URL", "net.URL": "a URL",
	"regexp.Valid": "a regular expression", "uuid.Valid": "a UUID", "list.UniqueItems": "each element once",
}

var bounds = map[token.Token]string{
	token.LSS: "less than %s", token.LEQ: "at most %s", token.GTR: "more than %s", token.GEQ: "at least %s", token.NEQ: "not %s",
	token.MAT: "text that matches %s", token.NMAT: "text that does not match %s",
}

// words says an expression that is no alternative of several.
func words(e ast.Expr, depth int) string {
	if depth > maxDepth {
		return Clip(Text(e))
	}
	switch x := strip(e).(type) {
	case *ast.Ident:
		if said := names[x.Name]; said != "" {
			return said
		}
	case *ast.UnaryExpr:
		if form := bounds[x.Op]; form != "" {
			return fmt.Sprintf(form, Clip(Text(x.X)))
		}
	case *ast.BinaryExpr:
		switch x.Op {
		case token.AND:
			return conjunction(split(x, token.AND, 0), depth)
		case token.OR:
			if a, ok := Of(x); ok {
				return a.Want
			}
		}
	case *ast.ListLit:
		if limits(x) {
			return elements(x, depth)
		}
	case *ast.StructLit:
		return "a struct"
	case *ast.CallExpr:
		if said, ok := call(x); ok {
			return said
		}
	case *ast.SelectorExpr:
		if said := validators[Text(x)]; said != "" {
			return said
		}
	}
	return Clip(Text(e))
}

// conjunction says what is all to hold.
func conjunction(all []ast.Expr, depth int) string {
	var said []string
	for i, e := range all {
		text := words(e, depth+1)
		if i > 0 && len(all) > 1 && text == "text" || slices.Contains(said, text) {
			continue
		}
		said = append(said, text)
	}
	if len(said) > 1 && (said[0] == "an integer" || said[0] == "a number" || said[0] == "text") {
		return said[0] + ", " + strings.Join(said[1:], " and ")
	}
	return strings.Join(said, " and ")
}

// elements says a list by what its elements may be.
func elements(x *ast.ListLit, depth int) string {
	least, of, more := 0, "", false
	var each []string
	for _, e := range x.Elts {
		rest, open := e.(*ast.Ellipsis)
		switch {
		case !open:
			least++
			of = words(e, depth+1)
			each = append(each, of)
		case rest.Type != nil:
			of = words(rest.Type, depth+1)
		}
		more = more || open
	}
	if computed := slices.ContainsFunc(x.Elts, func(e ast.Expr) bool { _, ok := e.(*ast.Comprehension); return ok }); !more && !computed && least > 0 {
		if len(slices.Compact(slices.Clone(each))) > 1 {
			return fmt.Sprintf("a list of %d: %s", least, strings.Join(each, ", "))
		}
		return fmt.Sprintf("a list, each %s, of exactly %d", of, least)
	}
	said := "a list"
	if of != "" && of != "any value" {
		said += ", each " + of
	}
	if least > 0 {
		said += fmt.Sprintf(", of at least %d", least)
	}
	return said
}

// matched says how many of several forms a value must have.
func matched(n, forms ast.Expr) string {
	many := words(n, 0)
	if _, exact := strip(n).(*ast.BasicLit); exact {
		many = "exactly " + many
	}
	l, ok := forms.(*ast.ListLit)
	if !ok {
		return many + " of " + Clip(Text(forms))
	}
	var said []string
	for _, e := range l.Elts {
		said = append(said, form(e))
	}
	return many + " of " + list(said)
}

// conditional says what matchIf(condition, then, otherwise) wants.
func conditional(args []ast.Expr) string {
	condition, then, otherwise := form(args[0]), form(args[1]), form(args[2])
	switch all := words(ast.NewIdent("_"), 0); {
	case otherwise == all:
		return fmt.Sprintf("%s where it has %s", then, condition)
	case then == all:
		return fmt.Sprintf("%s unless it has %s", otherwise, condition)
	}
	return fmt.Sprintf("%s where it has %s, else %s", then, condition, otherwise)
}

// form says one of several forms: of a struct what it has to have, as it is written if that is more than fields.
func form(e ast.Expr) string {
	s, ok := strip(e).(*ast.StructLit)
	if !ok {
		return words(e, 0)
	}
	var said []string
	for _, d := range s.Elts {
		f, isField := d.(*ast.Field)
		if _, open := d.(*ast.Ellipsis); open {
			continue
		}
		if !isField {
			return Clip(Text(e))
		}
		name, _, err := ast.LabelName(f.Label)
		if err != nil {
			return Clip(Text(e))
		}
		if f.Constraint == token.OPTION || hasDefault(f.Value) {
			continue
		}
		said = append(said, name+" ("+SayExpr(f.Value)+")")
	}
	if len(said) == 0 {
		return Clip(Text(e))
	}
	return strings.Join(said, " and ")
}

// hasDefault reports whether one of several alternatives is the default.
func hasDefault(e ast.Expr) bool {
	return slices.ContainsFunc(split(e, token.OR, 0), func(e ast.Expr) bool { _, isDefault := unmarked(e); return isDefault })
}

// MatchedAt returns the call of matchN or matchIf that a line and a column of a file lie in, nil if there is none.
func MatchedAt(f *ast.File, line, column int) (found ast.Expr) {
	ast.Walk(f, func(n ast.Node) bool {
		from, to := n.Pos(), n.End()
		switch c, ok := n.(*ast.CallExpr); {
		case !ok || found != nil || !isMatch(c):
		case cmp.Or(from.Line()-line, from.Column()-column) <= 0 && cmp.Or(to.Line()-line, to.Column()-column) > 0:
			found = c
		}
		return found == nil
	}, nil)
	return found
}

// Uses reports whether files have templates that are written as functions, (#Make & {in: …}).out, and
// whether they call matchN or matchIf.
func Uses(files []*ast.File) (functions, matches bool) {
	for _, f := range files {
		ast.Walk(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				_, call := n.X.(*ast.ParenExpr)
				functions = functions || call
			case *ast.CallExpr:
				matches = matches || isMatch(n)
			}
			return !functions || !matches
		}, nil)
	}
	return functions, matches
}

// isMatch reports whether a call is of matchN or matchIf.
func isMatch(c *ast.CallExpr) bool { return isCall(c, "matchN", 2) || isCall(c, "matchIf", 3) }

// isCall reports whether a call is of a builtin function with so many arguments.
func isCall(c *ast.CallExpr, name string, args int) bool {
	id, ok := c.Fun.(*ast.Ident)
	return ok && id.Name == name && len(c.Args) == args
}

// call says a function of CUE's standard library that checks a value.
func call(x *ast.CallExpr) (string, bool) {
	switch {
	case isCall(x, "matchN", 2):
		return matched(x.Args[0], x.Args[1]), true
	case isCall(x, "matchIf", 3):
		return conditional(x.Args), true
	}
	s, ok := x.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	pkg, ok := s.X.(*ast.Ident)
	name, _, err := ast.LabelName(s.Sel)
	form := map[string]string{
		"list.MinItems": "at least %s elements", "list.MaxItems": "at most %s elements", "list.UniqueItems": "each element once",
		"strings.MinRunes": "at least %s characters", "strings.MaxRunes": "at most %s characters",
		"struct.MinFields": "at least %s fields", "struct.MaxFields": "at most %s fields",
		"strings.Contains": "text that contains %s", "strings.HasPrefix": "text that begins with %s", "strings.HasSuffix": "text that ends with %s",
		"math.MultipleOf": "a multiple of %s", "list.Contains": "a list that contains %s", "time.Format": "a time of the form %s",
	}
	if !ok || err != nil || form[pkg.Name+"."+name] == "" {
		return "", false
	}
	said := form[pkg.Name+"."+name]
	if len(x.Args) == 1 && strings.Contains(said, "%s") {
		arg := Clip(Text(x.Args[0]))
		said = fmt.Sprintf(said, arg)
		if arg == "1" {
			said = strings.TrimSuffix(said, "s")
		}
	}
	return said, true
}

// split returns the operands of a chain of one operator.
func split(e ast.Expr, op token.Token, depth int) []ast.Expr {
	switch x := e.(type) {
	case *ast.ParenExpr:
		if depth <= maxDepth {
			return split(x.X, op, depth+1)
		}
	case *ast.BinaryExpr:
		if x.Op == op && depth <= maxDepth {
			return append(split(x.X, op, depth+1), split(x.Y, op, depth+1)...)
		}
	}
	return []ast.Expr{e}
}

// strip returns an expression without parentheses.
func strip(e ast.Expr) ast.Expr {
	for range maxDepth {
		p, ok := e.(*ast.ParenExpr)
		if !ok {
			return e
		}
		e = p.X
	}
	return e
}

// unmarked returns an alternative without the mark of a default, and whether it has it.
func unmarked(e ast.Expr) (ast.Expr, bool) {
	if u, ok := strip(e).(*ast.UnaryExpr); ok && u.Op == token.MUL {
		return u.X, true
	}
	return e, false
}

// Text returns an expression as it is written, in one line.
func Text(e ast.Expr) string {
	b, err := format.Node(e)
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(string(b)), " ")
}

// Clip cuts text to what fits a message.
func Clip(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}
