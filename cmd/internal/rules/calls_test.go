package rules

import (
	"go/ast"
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
