package rules

import (
	"go/ast"
	"slices"
	"strings"
)

// cores are the pure packages: no I/O, no clock, no goroutine, no global
// randomness. So the simulation, `muster simulate`, the tests and production
// run the same functions. Their other subpackages are adapters and not bound by this.
var cores = []string{
	"schema", "schema/valid", "placement", "placement/omega", "placement/rebalance", "placement/reserve", "placement/workload", "reconciler", "reconciler/control", "reconciler/control/draft",
	"reconciler/control/facts", "reconciler/control/snapshot", "reconciler/fastforward", "reconciler/intent", "reconciler/model", "reconciler/plan", "reconciler/quota", "reconciler/replay", "reconciler/shard", "reconciler/sources", "reconciler/status", "nodeagent", "nodeagent/naming", "nodeagent/network/policy", "nodeagent/network/services",
}

func isCore(dir string) bool { return slices.Contains(cores, dir) }

// pure lists what a core may import of the standard library: it can neither
// reach outside of the process nor remember anything. What is missing here was
// not needed yet, or is kept out by the reason in impure.
var pure = []string{
	"bufio", "bytes", "cmp", "container/heap", "container/list", "container/ring",
	"crypto/sha256", "encoding", "encoding/base64", "encoding/binary",
	"encoding/hex", "encoding/json", "errors", "fmt", "hash", "hash/fnv",
	"io", "iter", "maps", "math", "math/big", "math/bits",
	"math/rand/v2", "net/netip", "net/url", "path", "reflect", "regexp",
	"slices", "sort", "strconv", "strings", "text/tabwriter", "time",
	"unicode", "unicode/utf8",
}

// impure says why the packages that one might reach for are not in pure.
var impure = map[string]string{
	"context":       "nothing in a core blocks, so nothing can be cancelled",
	"crypto/rand":   "randomness comes from the seed that the caller gives",
	"embed":         "data comes as an argument",
	"hash/maphash":  "its seed differs from process to process",
	"log":           "a core returns what it has to say",
	"log/slog":      "a core returns what it has to say",
	"math/rand":     "its functions are global; math/rand/v2 with a source of your own is not",
	"net":           "no I/O",
	"net/http":      "no I/O",
	"os":            "no I/O, no environment",
	"os/exec":       "no I/O",
	"path/filepath": "depends on the system it runs on; path does not",
	"runtime":       "the answer must not depend on the machine",
	"sync":          "one goroutine owns the state; there is nothing to lock",
	"sync/atomic":   "one goroutine owns the state",
	"syscall":       "no I/O",
}

func checkPureImports(t *tree) []fault {
	var out []fault
	for _, f := range t.files {
		if f.test || !isCore(f.dir) {
			continue
		}
		for _, s := range f.ast.Imports {
			p := imported(s)
			if !standard(p) || slices.Contains(pure, p) {
				continue
			}
			reason := impure[p]
			if reason == "" {
				reason = "not in the list of pure packages; add it there if it does no I/O and keeps no state"
			}
			out = append(out, t.fault(s, "core %s imports %s: %s", f.dir, p, reason))
		}
	}
	return out
}

// clock is what reads a clock or waits for one.
var clock = []string{
	"Now", "Since", "Until", "After", "AfterFunc", "Tick", "NewTimer",
	"NewTicker", "Sleep",
	"Local", "LoadLocation", // the machine's time zone, and files of it
}

// seeded is what math/rand/v2 has that starts from a seed of the caller's; its
// other functions use the global source.
var seeded = []string{"New", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "PCG", "ChaCha8", "Source", "Zipf"}

func checkPureCode(t *tree) []fault {
	var out []fault
	for _, f := range t.files {
		if f.test || !isCore(f.dir) {
			continue
		}
		selectors(f, func(e *ast.SelectorExpr, pkg string) {
			name := e.Sel.Name
			switch {
			case pkg == "time" && slices.Contains(clock, name):
				out = append(out, t.fault(e, "core %s uses time.%s: now is an argument", f.dir, name))
			case pkg == "math/rand/v2" && !slices.Contains(seeded, name):
				out = append(out, t.fault(e, "core %s uses rand.%s: randomness comes from a seed that is an argument", f.dir, name))
			case pkg == "fmt" && (strings.HasPrefix(name, "Print") || strings.HasPrefix(name, "Scan")):
				out = append(out, t.fault(e, "core %s uses fmt.%s: no I/O", f.dir, name))
			}
		})
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				out = append(out, t.fault(n, "core %s starts a goroutine: whoever calls it owns the state", f.dir))
			case *ast.SelectStmt:
				out = append(out, t.fault(n, "core %s waits in a select: a core never blocks", f.dir))
			case *ast.ChanType:
				out = append(out, t.fault(n, "core %s has a channel: a core takes arguments and returns values", f.dir))
			case *ast.CallExpr:
				if x, ok := n.Fun.(*ast.Ident); ok && (x.Name == "print" || x.Name == "println") {
					out = append(out, t.fault(n, "core %s uses %s: no I/O", f.dir, x.Name))
				}
			case *ast.FuncDecl:
				if n.Recv == nil && n.Name.Name == "init" {
					out = append(out, t.fault(n, "core %s has an init function: a core keeps no state", f.dir))
				}
			}
			return true
		})
	}
	return out
}
