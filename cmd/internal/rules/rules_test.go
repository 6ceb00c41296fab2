package rules

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// rule is one thing that holds for the whole tree.
type rule struct {
	name  string
	check func(*tree) []fault
}

var rules = []rule{
	{"layers", checkLayers},
	{"owners", checkOwners},
	{"keeper", checkKeeper},
	{"calls", checkCalls},
	{"regexps", checkRegexps},
	{"dot imports", checkDotImports},
	{"pure imports", checkPureImports},
	{"pure code", checkPureCode},
	{"top level", checkTopLevel},
	{"names", checkNames},
	{"lengths", checkLengths},
	{"package docs", checkPackageDocs},
	{"doc comments", checkDocComments},
	{"architecture", checkArchitecture},
	{"named", checkNamed},
	{"mentioned", checkMentioned},
	{"dependencies", checkDependencies},
	{"words", checkWords},
	{"spoken", checkSpoken},
	{"ruled", checkRuled},
	{"messages", checkMessages},
	{"hints", checkHints},
}

// sorted returns the faults as text, in order.
func sorted(faults []fault) []string {
	var out []string
	for _, f := range faults {
		out = append(out, f.String())
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// TestRules holds the rules against the module.
func TestRules(t *testing.T) {
	t.Parallel()
	whole := parse(t, read(t))
	for _, r := range rules {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			for _, f := range sorted(r.check(whole)) {
				t.Error(f)
			}
		})
	}
}

// plant is a change to the tree that breaks a rule.
type plant struct {
	name string
	rule string
	path string
	text string
	want string // part of the fault that only this plant causes
}

const mod = module

var plants = []plant{
	{"schema imports placement", "layers", "schema/zz.go", "package schema\nimport _ \"" + mod + "/placement\"\n", "schema imports placement"},
	{"placement imports reconciler", "layers", "placement/zz.go", "package placement\nimport _ \"" + mod + "/reconciler\"\n", "placement imports reconciler"},
	{"reconciler imports its adapter", "layers", "reconciler/zz.go", "package reconciler\nimport _ \"" + mod + "/reconciler/store\"\n", "reconciler imports reconciler/store"},
	{"adapter imports adapter", "layers", "reconciler/zz/zz.go", "package zz\nimport _ \"" + mod + "/reconciler/store\"\n", "reconciler/zz imports reconciler/store"},
	{"reconciler imports nodeagent", "layers", "reconciler/zz/zz.go", "package zz\nimport _ \"" + mod + "/nodeagent\"\n", "reconciler/zz imports nodeagent"},
	{"nodeagent imports reconciler", "layers", "nodeagent/zz/zz.go", "package zz\nimport _ \"" + mod + "/reconciler\"\n", "nodeagent/zz imports reconciler"},
	{"test of nodeagent imports reconciler", "layers", "nodeagent/zz/zz_test.go", "package zz\nimport _ \"" + mod + "/reconciler/link\"\n", "nodeagent/zz imports reconciler/link"},
	{"package imports command", "layers", "nodeagent/zz/zz.go", "package zz\nimport _ \"" + mod + "/cmd/internal/cell\"\n", "nodeagent/zz imports cmd/internal/cell"},
	{"keeper imports schema", "layers", "nodeagent/keeper/zz.go", "package keeper\nimport _ \"" + mod + "/schema\"\n", "nodeagent/keeper imports schema"},
	{"agent imports compiler", "layers", "cmd/muster-agent/zz.go", "package main\nimport _ \"" + mod + "/schema/compile\"\n", "cmd/muster-agent imports schema/compile"},
	{"package imports the simulation", "layers", "reconciler/zz/zz_test.go", "package zz\nimport _ \"" + mod + "/cmd/internal/sim\"\n", "reconciler/zz imports cmd/internal/sim"},
	{"package outside of the layers", "layers", "zz/zz.go", "package zz\n", "no row"},

	{"reconciler imports CUE", "owners", "reconciler/zz/zz.go", "package zz\nimport _ \"cuelang.org/go/cue\"\n", "imports cuelang.org/go/cue"},
	{"command imports go-git", "owners", "cmd/muster/zz.go", "package main\nimport _ \"github.com/go-git/go-git/v5\"\n", "imports github.com/go-git/go-git/v5"},
	{"loop imports etcd", "owners", "reconciler/loop/zz.go", "package loop\nimport _ \"go.etcd.io/etcd/client/v3\"\n", "imports go.etcd.io/etcd/client/v3"},
	{"test of loop imports etcd", "owners", "reconciler/loop/zz_test.go", "package loop\nimport _ \"go.etcd.io/etcd/client/v3\"\n", "imports go.etcd.io/etcd/client/v3"},
	{"web imports gRPC", "owners", "reconciler/web/zz.go", "package web\nimport _ \"google.golang.org/grpc/codes\"\n", "the link is the only RPC"},
	{"production code imports go-cmp", "owners", "reconciler/web/zz.go", "package web\nimport _ \"github.com/google/go-cmp/cmp\"\n", "imports github.com/google/go-cmp/cmp"},
	{"core imports a dependency", "owners", "placement/zz.go", "package placement\nimport _ \"golang.org/x/sync/errgroup\"\n", "a core imports nothing but"},
	{"unknown dependency", "owners", "cmd/muster/zz.go", "package main\nimport _ \"example.com/zz\"\n", "no row for this dependency"},

	{"keeper imports gRPC", "keeper", "nodeagent/keeper/zz.go", "package keeper\nimport _ \"google.golang.org/grpc\"\n", "the keeper imports google.golang.org/grpc"},
	{"keeper command imports cobra", "keeper", "cmd/muster-keeper/zz.go", "package main\nimport _ \"github.com/spf13/cobra\"\n", "the keeper imports github.com/spf13/cobra"},

	{"fsync by hand", "calls", "reconciler/zz/zz.go", "package zz\nimport \"os\"\nfunc zz(f *os.File) error { return f.Sync() }\n", "reconciler/zz calls Sync"},
	{"expression compiled at the start", "regexps", "schema/valid/zz.go", "package valid\nimport \"regexp\"\nvar zz = regexp.MustCompile(`a`)\n", "schema/valid compiles a regular expression"},
	{"expression that does not compile", "regexps", "schema/valid/zz.go", "package valid\nimport \"" + mod + "/schema/lazyregexp\"\nvar zz = lazyregexp.New(`(`)\n", "missing closing"},
	{"lock by hand", "calls", "nodeagent/zz/zz.go", "package zz\nimport \"golang.org/x/sys/unix\"\nvar _ = unix.Flock(0, 0)\n", "nodeagent/zz calls Flock"},

	{"dot import", "dot imports", "cmd/muster/zz.go", "package main\nimport . \"fmt\"\n", "dot import of fmt"},

	{"schema imports os", "pure imports", "schema/zz.go", "package schema\nimport _ \"os\"\n", "core schema imports os"},
	{"reconciler imports net", "pure imports", "reconciler/zz.go", "package reconciler\nimport _ \"net\"\n", "core reconciler imports net"},
	{"placement imports math/rand", "pure imports", "placement/zz.go", "package placement\nimport _ \"math/rand\"\n", "core placement imports math/rand"},
	{"nodeagent imports slog", "pure imports", "nodeagent/zz.go", "package nodeagent\nimport _ \"log/slog\"\n", "core nodeagent imports log/slog"},
	{"core imports what nobody thought of", "pure imports", "schema/zz.go", "package schema\nimport _ \"database/sql\"\n", "core schema imports database/sql"},

	{"clock", "pure code", "schema/zz.go", "package schema\nimport \"time\"\nvar _ = time.Now()\n", "core schema uses time.Now"},
	{"clock as a value", "pure code", "nodeagent/zz.go", "package nodeagent\nimport \"time\"\nvar now = time.Now\n", "core nodeagent uses time.Now"},
	{"clock under another name", "pure code", "reconciler/zz.go", "package reconciler\nimport clock \"time\"\nvar _ = clock.Since(clock.Time{})\n", "core reconciler uses time.Since"},
	{"timer", "pure code", "placement/zz.go", "package placement\nimport \"time\"\nvar _ = time.NewTimer(0)\n", "core placement uses time.NewTimer"},
	{"time.After", "pure code", "placement/zz.go", "package placement\nimport \"time\"\nvar _ = time.After(0)\n", "core placement uses time.After"},
	{"time.Tick", "pure code", "placement/zz.go", "package placement\nimport \"time\"\nvar _ = time.Tick(1)\n", "core placement uses time.Tick"},
	{"goroutine", "pure code", "reconciler/zz.go", "package reconciler\nfunc zz() { go zz() }\n", "core reconciler starts a goroutine"},
	{"channel", "pure code", "reconciler/zz.go", "package reconciler\nvar zz chan int\n", "core reconciler has a channel"},
	{"select", "pure code", "reconciler/zz.go", "package reconciler\nfunc zz() { select {} }\n", "core reconciler waits in a select"},
	{"global randomness", "pure code", "placement/zz.go", "package placement\nimport \"math/rand/v2\"\nvar _ = rand.IntN(3)\n", "core placement uses rand.IntN"},
	{"print", "pure code", "schema/zz.go", "package schema\nimport \"fmt\"\nfunc zz() { fmt.Println() }\n", "core schema uses fmt.Println"},
	{"built-in print", "pure code", "schema/zz.go", "package schema\nfunc zz() { println() }\n", "core schema uses println"},
	{"init", "pure code", "schema/zz.go", "package schema\nfunc init() {}\n", "core schema has an init"},

	{"new directory at the top", "top level", "zz/zz.txt", "", "zz: not in the list"},
	{"Go file at the root", "top level", "zz.go", "package muster\n", "Go file at the root"},

	{"package util", "names", "reconciler/util/doc.go", "package util\n", "drawer"},
	{"package with another name than util", "names", "reconciler/zz/doc.go", "package common\n", "drawer"},
	{"Get prefix", "names", "reconciler/zz.go", "package reconciler\nfunc GetJob() {}\n", "GetJob"},
	{"Manager", "names", "reconciler/zz.go", "package reconciler\ntype taskManager struct{}\n", "taskManager"},

	{"long file", "lengths", "schema/zz.go", "package schema\n" + strings.Repeat("\n", 600), "longer than 600 lines"},
	{"long test file", "lengths", "schema/zz_test.go", "package schema\n" + strings.Repeat("\n", 600), "longer than 600 lines"},
	{"long function", "lengths", "schema/zz.go", "package schema\nfunc zz() {" + strings.Repeat("\n", 62) + "}\n", "zz has 61 lines"},

	{"no doc.go", "package docs", "reconciler/zz/zz.go", "package zz\n", "no doc.go"},
	{"comment in the wrong file", "package docs", "schema/zz.go", "// Package schema is.\npackage schema\n", "outside of doc.go"},
	{"comment that begins otherwise", "package docs", "reconciler/zz/doc.go", "// This package is good.\npackage zz\n", "begins with: Package zz"},
	{"command's comment that begins otherwise", "package docs", "cmd/zz/doc.go", "// Package main is good.\npackage main\n", "begins with: Command zz"},
	{"comment that says nothing", "package docs", "reconciler/zz/doc.go", "// Package zz is zz.\npackage zz\n", "too short"},

	{"private word", "words", "cmd/muster/zz.go", "package main\nconst zz = \"3 of 4 tasks run older data\"\n", "older data"},
	{"spoken word in a test's name", "spoken", "placement/zz_test.go", "package placement\nvar lastHeard int\n", "name lastHeard"},
	{"spoken word in a comment", "spoken", "placement/zz.go", "package placement\n\n// zz is told of changes.\nvar zz int\n", "placement/zz.go:3: comment with \"told\""},
	{"private word in a page", "words", "docs/zz.md", "the job\ngets new data\n", "docs/zz.md:2"},

	{"diagnostic without a rule", "ruled", "reconciler/zz.go", "package reconciler\nimport \"" + mod + "/schema\"\nvar zz = schema.Diagnostic{Message: \"x\"}\n", "a Diagnostic without Rule"},
	{"one in a list", "ruled", "cmd/muster/zz.go", "package main\nimport s \"" + mod + "/schema\"\nvar zz = []s.Diagnostic{{Message: \"x\"}}\n", "a Diagnostic without Rule"},
	{"one in a map", "ruled", "schema/zz.go", "package schema\nvar zz = map[int]*Diagnostic{1: {Message: \"x\"}}\n", "a Diagnostic without Rule"},
	{"problem without a rule", "ruled", "schema/valid/zz.go", "package valid\nvar zz = &Problem{Message: \"x\"}\n", "a Problem without Rule"},
	{"message that is searched", "messages", "reconciler/zz.go", "package reconciler\nimport \"strings\"\nfunc zz(d struct{ Message string }) bool { return strings.HasPrefix(d.Message, \"x\") }\n", "HasPrefix looks into Message"},
	{"regular expression over a message", "messages", "cmd/muster/zz.go", "package main\nimport \"regexp\"\nvar r *regexp.Regexp\nfunc zz(d struct{ Hint string }) bool { return r.MatchString(d.Hint) }\n", "MatchString looks into Hint"},
	{"note that is compared", "messages", "nodeagent/zz.go", "package nodeagent\nfunc zz(d struct{ Note string }) bool { return \"stuck\" == d.Note }\n", "Note is compared"},
	{"reason that is compared", "messages", "nodeagent/zz.go", "package nodeagent\nimport \"" + mod + "/schema\"\nfunc zz(d struct{ Reason string }) bool { return d.Reason != schema.AllJobs }\n", "Reason is compared"},

	{"hint within a text", "hints", "cmd/muster/zz.go", "package main\nconst zz = \"x\\nhint: do y\"\n", "a hint within a text"},
	{"hint that is printed below the commands", "hints", "reconciler/zz.go", "package reconciler\nconst zz = \"hint: do y\"\n", "a hint within a text"},

	{"function without comment", "doc comments", "schema/zz.go", "package schema\nfunc Zz() {}\n", "Zz has no doc comment"},
	{"method without comment", "doc comments", "schema/zz.go", "package schema\n// Zz is.\ntype Zz[T any] struct{}\nfunc (*Zz[T]) Do() {}\n", "Do has no doc comment"},
	{"type without comment", "doc comments", "schema/zz.go", "package schema\ntype Zz int\n", "type Zz has no doc comment"},
	{"constant without comment", "doc comments", "schema/zz.go", "package schema\nconst Zz = 1\n", "const Zz has no doc comment"},
	{"variable without comment", "doc comments", "schema/zz.go", "package schema\nvar (\n\ta int\n\tZz int\n)\n", "var Zz has no doc comment"},

	{"package without a paragraph", "architecture", "reconciler/zz/zz.go", "package zz\n", "has no paragraph"},

	{"comment that names nothing", "mentioned", "reconciler/zz.go", "package reconciler\n\n// see model.Zz\n", "names model.Zz, which is not declared"},
	{"file that is not there", "named", architecturePage, "`reconciler/zz.go`", "names the file reconciler/zz.go, which is not there"},
	{"name of nothing", "named", architecturePage, "`reconciler.Zz`", "names `reconciler.Zz`, which is not declared"},

	{"dependency without a line", "dependencies", "go.mod", "module " + mod + "\nrequire (\n\texample.com/zz v1.0.0\n)\n", "no line for the direct dependency example.com/zz"},
	{"line without a dependency", "dependencies", dependencyPage, "| `example.com/zz` | nothing |\n", "a line for example.com/zz"},
}

// TestPlanted plants each violation in the real tree and wants the rule to
// find it, and a violation for every rule.
func TestPlanted(t *testing.T) {
	t.Parallel()
	src := read(t)
	parse(t, src) // so that a tree that does not parse is said once
	for _, r := range rules {
		if !slices.ContainsFunc(plants, func(p plant) bool { return p.rule == r.name }) {
			t.Errorf("rule %q was never seen to fail: plant a violation of it", r.name)
		}
	}
	for _, p := range plants {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			planted := maps.Clone(src)
			planted[p.path] = p.text
			i := slices.IndexFunc(rules, func(r rule) bool { return r.name == p.rule })
			if i < 0 {
				t.Fatalf("no rule %q", p.rule)
			}
			found := func(f fault) bool {
				at, _, _ := strings.Cut(f.at, ":")
				return strings.Contains(f.String(), p.want) && (strings.HasPrefix(p.path, at) || at == dependencyPage)
			}
			if faults := rules[i].check(parse(t, planted)); !slices.ContainsFunc(faults, found) {
				t.Errorf("rule %q let this pass:\n%s\nfaults: %q", p.rule, p.text, sorted(faults))
			}
			if slices.ContainsFunc(rules[i].check(parse(t, src)), found) {
				t.Errorf("rule %q finds %q without the plant: the test proves nothing", p.rule, p.want)
			}
		})
	}
}

// TestAllowed plants what looks like a violation and is none.
func TestAllowed(t *testing.T) {
	t.Parallel()
	src := read(t)
	for _, p := range []plant{
		{"test of a core reads the clock", "pure code", "schema/zz_test.go", "package schema\nimport \"time\"\nvar _ = time.Now()\n", ""},
		{"test of a core reads files", "pure imports", "schema/zz_test.go", "package schema\nimport _ \"os\"\n", ""},
		{"seeded randomness", "pure code", "placement/zz.go", "package placement\nimport \"math/rand/v2\"\nvar _ = rand.New(rand.NewPCG(1, 2))\n", ""},
		{"adapter below a core", "pure imports", "reconciler/zz/zz.go", "package zz\nimport _ \"os\"\n", ""},
		{"test of a loop uses the store", "layers", "reconciler/loop/zz_test.go", "package loop\nimport _ \"" + mod + "/reconciler/store\"\n", ""},
		{"test of the agent uses the master's end of the link", "layers", "cmd/muster-agent/zz_test.go", "package main\nimport _ \"" + mod + "/reconciler/link\"\n", ""},
		{"long test function", "lengths", "schema/zz_test.go", "package schema\nfunc zz() {" + strings.Repeat("\n", 90) + "}\n", ""},
		{"diagnostic of nothing", "ruled", "schema/zz.go", "package schema\nvar zz = Diagnostic{}\n", ""},
		{"another Diagnostic", "ruled", "placement/zz.go", "package placement\ntype Diagnostic struct{ Message string }\nvar zz = Diagnostic{Message: \"x\"}\n", ""},
		{"command that prints a hint", "hints", "cmd/muster/zz.go", "package main\nconst zz = \"hint: do y\"\n", ""},
		{"message that is there", "messages", "schema/zz.go", "package schema\nfunc zz(a, b Diagnostic) bool { return a.Message != \"\" && a.Message == b.Message }\n", ""},
		{"test of words", "messages", "schema/zz_test.go", "package schema\nimport \"strings\"\nfunc zz(d Diagnostic) bool { return strings.Contains(d.Message, \"x\") }\n", ""},
		{"generated code", "doc comments", "schema/linkpb/zz.go", "// Code generated by x. DO NOT EDIT.\n\npackage linkpb\nfunc Zz() {}\n", ""},
	} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			planted := maps.Clone(src)
			planted[p.path] = p.text
			i := slices.IndexFunc(rules, func(r rule) bool { return r.name == p.rule })
			for _, f := range rules[i].check(parse(t, planted)) {
				if strings.HasPrefix(f.at, p.path) {
					t.Errorf("rule %q: %s", p.rule, f)
				}
			}
		})
	}
}
