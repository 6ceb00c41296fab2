package rules

import (
	"go/ast"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// call is a method or function, by its name, that few packages may call, since the
// order of the calls around it is easily got wrong, and no test sees it.
type call struct {
	name   string
	may    []string
	reason string
}

var calls = []call{
	{"Sync", []string{"schema/atomicfile", "reconciler/events"}, "schema/atomicfile writes what must outlive a crash; the event log is only ever appended to"},
	{"Flock", []string{"schema/filelock", "reconciler/local", "nodeagent/network/cni"}, "schema/filelock holds directories; the other locks are waited for, and held for a moment: one of them by programs that inherit it"},
}

func checkCalls(t *tree) []fault {
	var out []fault
	for _, f := range t.files {
		if f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			made, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			e, ok := made.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			for _, c := range calls {
				if e.Sel.Name == c.name && !matches(f.dir, c.may) {
					out = append(out, t.fault(made, "%s calls %s: %s", f.dir, c.name, c.reason))
				}
			}
			return true
		})
	}
	return out
}

// selectors calls visit for each selector in f whose operand is an imported
// package, with that package's path.
func selectors(f *file, visit func(e *ast.SelectorExpr, pkg string)) {
	names := map[string]string{}
	for _, s := range f.ast.Imports {
		p := imported(s)
		name := p[strings.LastIndex(p, "/")+1:]
		if name == "v2" {
			name = "rand" // math/rand/v2 is the only one of the standard library
		}
		if s.Name != nil {
			name = s.Name.Name
		}
		names[name] = p
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		if e, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := e.X.(*ast.Ident); ok && names[x.Name] != "" {
				visit(e, names[x.Name])
			}
		}
		return true
	})
}

// eager are the packages whose regular expressions are compiled at the start of a program: those
// of programs that are for developers alone, and schema, which imports nothing of ours and has one.
var eager = []string{"schema", "cmd/internal/bench", "cmd/internal/sim"}

// checkRegexps finds regular expressions that are compiled at the start of each program that has
// them, and those of schema/lazyregexp that do not compile.
func checkRegexps(t *tree) []fault {
	var out []fault
	for _, f := range t.files {
		if f.test {
			continue
		}
		for _, d := range f.ast.Decls {
			if _, ok := d.(*ast.GenDecl); ok && !slices.Contains(eager, f.dir) {
				out = append(out, compiledAtStart(t, f, d)...)
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && isLazy(call) {
				if err := compiles(call.Args[0]); err != nil {
					out = append(out, t.fault(call, "%s: %v", f.dir, err))
				}
			}
			return true
		})
	}
	return out
}

// compiledAtStart returns a fault for each expression that a declaration compiles, but not for what
// a function in it does.
func compiledAtStart(t *tree, f *file, d ast.Decl) (out []fault) {
	ast.Inspect(d, func(n ast.Node) bool {
		if e, ok := n.(*ast.SelectorExpr); ok && e.Sel.Name == "MustCompile" {
			out = append(out, t.fault(n, "%s compiles a regular expression at the start of each program: use schema/lazyregexp", f.dir))
		}
		_, isFunc := n.(*ast.FuncLit)
		return !isFunc
	})
	return out
}

// isLazy reports whether a call is one of lazyregexp.New.
func isLazy(call *ast.CallExpr) bool {
	e, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || e.Sel.Name != "New" || len(call.Args) != 1 {
		return false
	}
	pkg, ok := e.X.(*ast.Ident)
	return ok && pkg.Name == "lazyregexp"
}

// compiles returns why an expression that stands in the source does not compile. One that is made
// of parts is used by a test of its package.
func compiles(e ast.Expr) error {
	lit, ok := e.(*ast.BasicLit)
	if !ok {
		return nil
	}
	expr, err := strconv.Unquote(lit.Value)
	if err != nil {
		return err
	}
	_, err = regexp.Compile(expr)
	return err
}
