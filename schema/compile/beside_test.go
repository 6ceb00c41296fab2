package compile_test

import (
	"flag"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
	"github.com/musterhq/muster/schema/turns"
)

// besideFull has TestBeside compile each hostile package at its full size and within the
// default limits, alone, and measure.
var besideFull = flag.Bool("compile.beside", false, "TestBeside has hostile packages of full size, and measures delays and memory")

// size is how large a hostile package is: n of the test as CI runs it, full of the other.
func size(n, full int) int {
	if *besideFull {
		return full
	}
	return n
}

// beside are hostile packages of one tenant, whose directories are below teams/a.
func beside() map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, part := range []map[string]map[string]string{besideLoops(), besideTexts(), besideStructs(), besideFiles()} {
		maps.Copy(all, part)
	}
	return all
}

// besideLoops want much of little: comprehensions, lists and numbers.
func besideLoops() map[string]map[string]string {
	lists := using("list")
	ranged := func(n, full int) string { return fmt.Sprintf("_r: list.Range(0, %d, 1)\n", size(n, full)) }
	return map[string]map[string]string{
		"fields":      one(lists + ranged(300_000, 1_000_000) + "_f: {for i in _r {\"f\\(i)\": i}}\njob: web: tasks: _f.f7\n"),
		"product":     one(lists + ranged(1000, 4000) + "job: web: labels: x: \"\\(len([for a in _r for b in _r {a * b}]))\"\n"),
		"matrix":      one(lists + ranged(600, 2000) + "job: web: labels: {for a in _r for b in _r {\"l\\(a)-\\(b)\": \"x\"}}\n"),
		"sorted":      one(lists + ranged(100_000, 500_000) + "job: web: labels: x: \"\\(list.Sort(_r, {x: _, y: _, less: x > y})[0])\"\n"),
		"unique":      one(lists + ranged(20_000, 100_000) + "_u: list.UniqueItems(_r)\njob: web: labels: {if _u {x: \"y\"}}\n"),
		"repeated":    one(lists + ranged(1000, 1000) + fmt.Sprintf("job: web: labels: x: \"\\(len(list.Repeat(_r, %d)))\"\n", size(20_000, 1_000_000))),
		"factorial":   one(lists + fmt.Sprintf("_f: {\"0\": 1, for i in list.Range(1, %d, 1) {\"\\(i)\": _f[\"\\(i-1)\"] * i}}\n", size(5000, 50_000)) + "job: web: tasks: _f[\"3\"]\n"),
		"shift":       one(using("math/bits") + "job: web: tasks: bits.Lsh(1, 4000000000)\n"),
		"defaults":    one(manyDefaults(size(14, 20))),
		"self":        one("package p\n\n_a: {s: 1, for k, v in _a {\"\\(k)x\": v}}\njob: web: labels: _a\n"),
		"recursion":   one(fmt.Sprintf("package p\n\n#R: {n: int, if n < %d {m: #R & {\"n\": n + 1}}}\njob: web: labels: x: \"\\((#R & {n: 0}).m.n)\"\n", size(2000, 100_000))),
		"disjunction": one("package p\n\n#T: {l: #T | *null, r: #T | *null, v: int | *0}\n_t: #T & {" + strings.Repeat("l: {r: {", size(12, 40)) + "v: 1" + strings.Repeat("}}", size(12, 40)) + "}\njob: web: tasks: _t.v\n"),
	}
}

// manyDefaults adds n values up, each of which is one of three structs by default.
func manyDefaults(n int) string {
	b := "package p\n\n_s: {}\n"
	for i := range n {
		b += fmt.Sprintf("_s: *{d%d: 1} | {d%d: 2, e?: int} | {d%d: 3, e?: string}\n", i, i, i)
	}
	return b + "job: web: labels: _s\n"
}

// besideTexts want much of texts.
func besideTexts() map[string]map[string]string {
	nested := fmt.Sprintf("strings.Repeat(\"[\", %[1]d) + strings.Repeat(\"]\", %[1]d)", size(200_000, 4_000_000))
	merges := "a0: &a0 {x: 1}\n"
	for i := range size(22, 40) {
		merges += fmt.Sprintf("a%d: &a%d {l: *a%d, r: *a%d}\n", i+1, i+1, i, i)
	}
	return map[string]map[string]string{
		"json-nested":   one(using("encoding/json", "strings") + "job: web: labels: json.Unmarshal(" + nested + ")\n"),
		"json-doubled":  one(using("encoding/json") + doubling(30, "[1]", "json.Marshal([P, P])")[len("package p\n\n"):] + "job: web: labels: x: _a30\n"),
		"yaml-merges":   one(using("encoding/yaml") + "job: web: labels: yaml.Unmarshal(" + quote(merges) + ")\n"),
		"base64":        one(using("encoding/base64") + doubling(40, "'aa'", "'\\(base64.Encode(null, P))\\(base64.Encode(null, P))'")[len("package p\n\n"):] + "job: web: labels: x: \"\\(_a40)\"\n"),
		"hash":          one(using("crypto/sha512", "encoding/hex", "strings", "list") + fmt.Sprintf("job: web: labels: x: strings.Join([for i in list.Range(0, %d, 1) {hex.Encode(sha512.Sum512(strings.Repeat(\"\\(i)\", 1000000)))}], \"\")\n", size(300, 20_000))),
		"template-self": one(using("text/template") + "job: web: labels: x: template.Execute(#\"{{define \"a\"}}{{template \"a\" .}}{{template \"a\" .}}{{end}}{{template \"a\" .}}\"#, {})\n"),
		"regexp-all":    one(using("regexp", "strings") + fmt.Sprintf("job: web: labels: x: regexp.ReplaceAll(\"(a?){50}(a*)*b?\", strings.Repeat(\"a\", %d), \"xxxxxxxxxx\")\n", size(200_000, 50_000_000))),
		"replaced":      one(using("strings") + doubling(40, "\"aa\"", "strings.Replace(P, \"a\", \"aa\", -1)")[len("package p\n\n"):] + "job: web: labels: x: _a40\n"),
		"csv":           one(using("encoding/csv", "strings") + fmt.Sprintf("job: web: labels: x: csv.Decode(strings.Repeat(\"a,b,c\\n\", %d))[0][0]\n", size(300_000, 10_000_000))),
		"attributes":    one("package p\n\njob: web: tasks: 1 " + strings.Repeat("@a(b)", size(200_000, 700_000)) + "\n"),
		"comments":      one("package p\n\n" + strings.Repeat("//\n", size(300_000, 1_300_000)) + "job: web: {}\n"),
	}
}

// besideStructs are written large.
func besideStructs() map[string]map[string]string {
	var rules, labels, written strings.Builder
	for i := range size(100, 300) {
		fmt.Fprintf(&rules, "_p: [=~\"^f.*%d$\"]: {a?: int, b%d?: string}\n", i, i)
	}
	for i := range size(2000, 50_000) {
		fmt.Fprintf(&labels, "_p: f%d: {}\n", i)
	}
	for i := range size(50_000, 200_000) {
		fmt.Fprintf(&written, "_f%d: %d\n", i, i)
	}
	return map[string]map[string]string{
		"patterns": one("package p\n\n" + rules.String() + labels.String() + "job: web: labels: _p\n"),
		"written":  one("package p\n\n" + written.String() + "job: web: {}\n"),
		"names":    one("package p\n\n" + fmt.Sprintf("_n: %s: 1\n", strings.Repeat("x", size(1<<20, 3<<20))) + "job: web: labels: _n\n"),
		"levels":   one(levels(size(150, 1500))),
	}
}

// levels makes definitions of which each adds a field to the one before.
func levels(n int) string {
	b := "package p\n\n#L0: {...}\n"
	for i := range n {
		b += fmt.Sprintf("#L%d: #L%d & {f%d: {g: *%d | int}}\n", i+1, i, i, i)
	}
	return b + fmt.Sprintf("job: web: labels: #L%d\n", n)
}

// besideFiles are many files, or large ones.
func besideFiles() map[string]map[string]string {
	embeds := func(attribute string, more map[string]string) map[string]string {
		files := one("@extern(embed)\n\npackage p\n\n_x: _ @embed(" + attribute + ")\njob: web: labels: x: \"\\(len(_x))\"\n")
		maps.Copy(files, more)
		return files
	}
	large, many := map[string]string{}, map[string]string{}
	for i := range size(4, 60) {
		large[fmt.Sprintf("d/f%d.json", i)] = "[" + strings.Repeat("{\"a\":[1,2,3]},", 70_000) + "1]"
	}
	for i := range size(100, 2000) {
		many[fmt.Sprintf("m%d/p.cue", i)] = fmt.Sprintf("package p%d\n\nimport \"list\"\n\n_r: list.Range(0, %d, 1)\njob: web: labels: x: len([for a in _r if a > 7 {a}])\n", i, 1000+i)
	}
	cycle := func(to string) string {
		return fmt.Sprintf("package p\n\nimport x \"example.com/config/teams/a/cycle/%s:p\"\n\nX: x.X\njob: web: labels: x: x.X\n", to)
	}
	return map[string]map[string]string{
		"embed-large": embeds(`glob="d/*.json"`, large),
		"embed-yaml":  embeds(`file="d.yaml"`, map[string]string{"d.yaml": yamlLaughs()}),
		"many":        many,
		"cycle":       {"cycle/x/p.cue": cycle("y"), "cycle/y/p.cue": cycle("z"), "cycle/z/p.cue": cycle("x")},
	}
}

// TestBeside commits each of the hostile packages of one tenant together with a line of
// another one: that is not to wait for them, and none is taken.
func TestBeside(t *testing.T) {
	t.Parallel()
	all := beside()
	for i, name := range slices.Sorted(maps.Keys(all)) {
		if !turns.Takes(i) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			limits := compile.Limits{CPU: 4 * time.Second, HeapBytes: 192 << 20, AllocBytes: 2 << 30}
			if *besideFull {
				limits = compile.Limits{}
			} else {
				t.Parallel()
			}
			besideOne(t, all[name], limits)
		})
	}
}

func besideOne(t *testing.T, hostile map[string]string, limits compile.Limits) {
	c := compiler(t, compile.Config{Limits: limits})
	files := shared(nil)
	quick := func(what string) time.Duration { // until the other tenant's package is compiled
		t.Helper()
		start := time.Now()
		for out, err := range c.Parts(t.Context(), tree(files)) {
			if err != nil {
				t.Fatal(err)
			}
			if i := slices.IndexFunc(out.Packages, func(p schema.CompiledPackage) bool { return p.Dir == "teams/b" }); out.Packages[i].Package != nil {
				return time.Since(start)
			}
		}
		t.Errorf("%s: the other tenant's package has no data", what)
		return 0
	}
	alone := quick("alone")
	debug.FreeOSMemory()
	before := resident("self")
	for name, s := range hostile {
		files["teams/a/"+name] = s
	}
	files["teams/b/b.cue"] += "// a line\n"
	stop := watchChildren(t)
	start, cpu := time.Now(), used()
	together := quick("together")
	cpuQuick := used() - cpu
	out, err := c.Compile(t.Context(), tree(files))
	if err != nil {
		t.Fatal(err)
	}
	took, cpuAll := time.Since(start), used()-cpu
	child, _ := stop()
	ruled(t, out)
	message := refusedBeside(t, out)
	files["teams/b/b.cue"] += "// another\n"
	next := quick("the commit after")
	clear(files)
	c.Close()
	debug.FreeOSMemory()
	kept := resident("self") - before
	if !*besideFull {
		return
	}
	fmt.Printf("| %s | %.2f s | %.2f s (%.1f s) | %.2f s | %.1f s (%.1f s) | %d MiB | %d MiB | %s |\n", strings.TrimPrefix(t.Name(), "TestBeside/"), alone.Seconds(),
		together.Seconds(), cpuQuick.Seconds(), next.Seconds(), took.Seconds(), cpuAll.Seconds(), child>>20, kept>>20, message)
	if cpuQuick > 6*time.Second {
		t.Errorf("the other tenant's line waits for %v of processor time", cpuQuick)
	}
	if most := int64(1<<30)*3/2 + 256<<20; child > most {
		t.Errorf("a child had %d MiB", child>>20)
	}
	if kept > 64<<20 {
		t.Errorf("%d MiB are kept", kept>>20)
	}
}

// refusedBeside returns what is said of the packages of tenant a, none of which may be taken.
func refusedBeside(t *testing.T, out schema.Compiled) (message string) {
	t.Helper()
	for _, p := range out.Packages {
		if !strings.HasPrefix(p.Dir, "teams/a") {
			continue
		}
		if p.Package != nil || len(p.Diagnostics) == 0 {
			t.Errorf("%s was taken", p.Dir)
			continue
		}
		if d := p.Diagnostics[0]; d.Path == "" || d.Line == 0 || d.Rule == schema.RuleInternal || len(d.Error()) > 1000 {
			t.Errorf("%s: %v", p.Dir, d)
		}
		message = strings.ReplaceAll(p.Diagnostics[0].Message[:min(90, len(p.Diagnostics[0].Message))], "|", "\\|")
	}
	if message == "" {
		t.Error("tenant a has no packages")
	}
	return message
}
