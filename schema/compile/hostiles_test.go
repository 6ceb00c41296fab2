package compile_test

import (
	"fmt"
	"maps"
	"strings"
)

// doubling makes n lines in which each value is built from two of the one
// before.
func doubling(n int, first, each string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "package p\n\n_a0: %s\n", first)
	for i := 1; i <= n; i++ {
		p := fmt.Sprintf("_a%d", i-1)
		fmt.Fprintf(&b, "_a%d: %s\n", i, strings.ReplaceAll(each, "P", p))
	}
	return b.String()
}

const runs = "job: web: {user: \"a\", cell: \"local\", task: process: command: [%s]}\n"

// hostile are packages that attack the compiler, by directory. Each must end
// within the limits, with an error, and do no harm to the package beside it.
func hostile() map[string]map[string]string {
	all := map[string]map[string]string{}
	for _, part := range []map[string]map[string]string{blowUps(), nested(), texts(), imported(), embedding(), erroneous()} {
		maps.Copy(all, part)
	}
	return all
}

// endless is a file that takes longer to evaluate than anyone waits.
const endless = "package p\n\nimport \"list\"\n\n_r: list.Range(0, 3000, 1)\n" +
	"job: {for a in _r for b in _r for c in _r if a*b*c == 7 {\"j-\\(a)-\\(b)-\\(c)\": {}}}\n"

func one(s string) map[string]string { return map[string]string{"p.cue": s} }

// using begins a file that imports packages of the standard library.
func using(packages ...string) string {
	b := "package p\n\n"
	for _, p := range packages {
		b += fmt.Sprintf("import %q\n", p)
	}
	return b + "\n"
}

// blowUps are small files that want much time or memory.
func blowUps() map[string]map[string]string {
	lists, both := using("list"), using("list", "strings")
	return map[string]map[string]string{
		"laughs":       one(doubling(40, "\"ha\"", "[P, P]") + "job: web: labels: x: _a40\n"),
		"laughs-map":   one(doubling(30, "{x: \"ha\"}", "{a: P, b: P}") + "job: web: _a30\n"),
		"strings":      one(doubling(40, "\"haha\"", "\"\\(P)\\(P)\"") + fmt.Sprintf(runs, "_a40")),
		"bytes":        one(doubling(40, "'haha'", "'\\(P)\\(P)'") + fmt.Sprintf(runs, "_a40")),
		"integers":     one(doubling(40, "12345678901234567890", "P * P") + "job: web: tasks: _a40\n"),
		"range":        one(lists + "job: web: labels: x: list.Range(0, 1000000000, 1)\n"),
		"range-float":  one(lists + "job: web: labels: x: list.Range(0, 1, 0.000000001)\n"),
		"list-repeat":  one(lists + "job: web: labels: x: list.Repeat([1, 2, 3], 500000000)\n"),
		"flatten":      one(lists + doubling(26, "[1]", "[P, P]")[len("package p\n\n"):] + "job: web: labels: x: list.FlattenN(_a26, -1)\n"),
		"combine":      one(lists + "_r: list.Range(0, 100000, 1)\njob: web: labels: x: [for a in _r if list.Contains(_r, a + 1) {a}]\n"),
		"repeat":       one(using("strings") + fmt.Sprintf(runs, "strings.Repeat(\"x\", 3000000000)")),
		"repeat-twice": one(using("strings") + fmt.Sprintf(runs, "strings.Repeat(strings.Repeat(\"x\", 100000), 100000)")),
		"split":        one(using("strings") + "job: web: labels: x: strings.Split(strings.Repeat(\"x\", 300000000), \"\")\n"),
		"join":         one(both + fmt.Sprintf(runs, "strings.Join([for i in list.Range(0, 100000000, 1) {\"\\(i)\"}], \"\")")),
		"regexp":       one(using("strings") + "job: web: tasks: [if strings.Repeat(\"a\", 200000000) =~ \"^(a|aa|aaa|a?)*b\" {1}, 2][0]\n"),
		"regexp-size":  one("package p\n\njob: web: labels: x: =~\"" + strings.Repeat("(a{10}", 6) + strings.Repeat("){10}", 6) + "\"\n"),
		"power":        one(using("math") + "job: web: tasks: math.Pow(7, 1000000000)\n"),
		"power-e":      one(using("math") + "job: web: tasks: math.Exp(100000)\n"),
		"template":     one(using("text/template") + fmt.Sprintf(runs, "template.Execute(\"{{range $i := .}}{{range $j := $}}{{range $k := $}}{{range $l := $}}x{{end}}{{end}}{{end}}{{end}}\", [for i in [1,2,3,4,5,6,7,8] for j in [1,2,3,4,5,6,7,8] for k in [1,2,3,4,5,6,7,8] {i}])")),
		"unmarshal":    one(using("encoding/yaml") + "job: web: labels: x: yaml.Unmarshal(" + quote(yamlLaughs()) + ")\n"),
		"nested-for":   one(lists + "_r: list.Range(0, 3000, 1)\njob: {for a in _r for b in _r for c in _r if a*b*c == 7 {\"j-\\(a)-\\(b)-\\(c)\": {}}}\n"),
		"many-objects": one(lists + "for i in list.Range(0, 30000, 1) {cell: \"c\\(i)\": {}}\n"),
		"product":      one("package p\n\n_d: " + strings.Repeat("(1 | 2 | 3 | 4) + ", 16) + "1\njob: web: tasks: _d\n"),
		"disjunctions": one("package p\n\n" + disjunctions(14) + "job: web: _x\n"),
		"defaults":     one("package p\n\n" + strings.ReplaceAll(disjunctions(14), "| {", "| *{") + "job: web: _x\n"),
		"closed":       one("package p\n\n#A0: {a?: int}\n" + closed(22) + "job: web: #A22\n"),
		"patterns":     one("package p\n\n" + patterns(400) + "job: web: _p\n"),
		"lets":         one("package p\n\nlet a0 = [1]\n" + lets(30) + "job: web: labels: x: a30\n"),
	}
}

// yamlLaughs is a document of which each line doubles the one before.
func yamlLaughs() string {
	b := "a0: &a0 [x,x]\n"
	for i := range 40 {
		b += fmt.Sprintf("a%d: &a%d [*a%d,*a%d]\n", i+1, i+1, i, i)
	}
	return b
}

// lets makes n local names of which each holds the one before twice.
func lets(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "let a%d = [a%d, a%d]\n", i+1, i, i)
	}
	return b.String()
}

func quote(s string) string { return fmt.Sprintf("%q", s) }

// closed makes definitions of which each embeds the one before twice.
func closed(n int) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, "#A%d: {#A%d, b%d?: #A%d, c%d?: #A%d & {}}\n", i, i-1, i, i-1, i, i-1)
	}
	return b.String() + fmt.Sprintf("#A%d: {b%d: {b%d: {}}}\n", n, n, n-1)
}

// patterns makes n constraints on all fields, and n fields.
func patterns(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "_p: [=~\"^f.*%d\"]: {[=~\"x\"]: {[string]: int}, \"x%d\": {y: 1}}\n_p: \"f%d%d\": {}\n", i%10, i, i, i)
	}
	return b.String()
}

// nested are nested deeply, or refer to themselves.
func nested() map[string]map[string]string {
	return map[string]map[string]string{
		"deep":          one("package p\n\njob: web: " + strings.Repeat("{a: ", 5000) + "1" + strings.Repeat("}", 5000) + "\n"),
		"deep-path":     one("package p\n\njob: web: " + strings.Repeat("a: ", 100000) + "1\n"),
		"deep-lists":    one("package p\n\njob: web: labels: x: " + strings.Repeat("[", 100000) + strings.Repeat("]", 100000) + "\n"),
		"parentheses":   one("package p\n\njob: web: tasks: " + strings.Repeat("(", 200000) + "1" + strings.Repeat(")", 200000) + "\n"),
		"interpolation": one("package p\n\njob: web: user: " + strings.Repeat("\"\\(", 20000) + "1" + strings.Repeat(")\"", 20000) + "\n"),
		"operators":     one("package p\n\njob: web: tasks: " + strings.Repeat("1+", 200000) + "1\n"),
		"selectors":     one("package p\n\n_a: {a: _a}\njob: web: tasks: _a" + strings.Repeat(".a", 200000) + "\n"),
		"indices":       one("package p\n\njob: web: tasks: [1]" + strings.Repeat("[0]", 200000) + "\n"),
		"calls":         one("package p\n\njob: web: tasks: " + strings.Repeat("len(", 100000) + "\"\"" + strings.Repeat(")", 100000) + "\n"),
		"minus":         one("package p\n\njob: web: tasks: " + strings.Repeat("-", 200000) + "1\n"),
		"cycle":         one("package p\n\n#X: {n: #X}\njob: web: #X\n"),
		"infinite":      one("package p\n\n#F: {n: int, out: (#F & {\"n\": n + 1}).out}\njob: web: tasks: (#F & {n: 0}).out\n"),
		"growing":       one("package p\n\n_l: [for x in _l {x}, 1]\njob: web: labels: x: _l\n"),
		"chain":         one("package p\n\n" + chain(20000) + "job: web: labels: x: _a0\n"),
	}
}

// chain makes n fields of which each needs the next.
func chain(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "_a%d: [_a%d]\n", i, i+1)
	}
	return b.String() + fmt.Sprintf("_a%d: 1\n", n)
}

// texts have bytes that a file should not have, or too many.
func texts() map[string]map[string]string {
	return map[string]map[string]string{
		"long-string":    one("package p\n\n" + fmt.Sprintf(runs, "\""+strings.Repeat("x", 3<<20)+"\"")),
		"long-name":      one("package p\n\njob: \"" + strings.Repeat("x", 1<<20) + "\": {}\n"),
		"long-package":   one("package " + strings.Repeat("p", 1<<20) + "\n\njob: web: {}\n"),
		"huge-file":      one("package p\n\n// " + strings.Repeat("x", 5<<20) + "\n"),
		"huge-number":    one("package p\n\njob: web: tasks: 1" + strings.Repeat("0", 100000) + "\n"),
		"exponent":       one("package p\n\njob: web: tasks: 1e100000\n"),
		"exponent-most":  one("package p\n\njob: web: tasks: 1e2147483647\n"),
		"exponent-over":  one("package p\n\njob: web: tasks: 1e99999999999999999999\n"),
		"exponent-least": one("package p\n\njob: web: tasks: 1e-2147483647\n"),
		"invalid-utf8":   one("package p\n\njob: web: \xff\xfe\n"),
		"surrogate":      one("package p\n\njob: web: \"\xed\xa0\x80\": {}\n"),
		"utf16":          one("\xff\xfep\x00a\x00c\x00k\x00"),
		"nul":            one("package p\n\njob: web: \x00\n"),
		"only-nul":       one(strings.Repeat("\x00", 1<<20)),
		"bom-within":     one("package p\n\njob: \ufeffweb: {}\n"),
		"utf8-value":     one("package p\n\n" + fmt.Sprintf(runs, `'\xff\xfe'`)),
		"empty":          one(""),
		"no-package":     one("job: web: {}\n"),
		"underscore":     one("package _\n\njob: web: {}\n"),
		"two-packages":   {"a.cue": "package a\n", "b.cue": "package b\n"},
		"many-packages":  manyPackages(3000),
		"gzip":           one("\x1f\x8b\x08\x00\x00\x00\x00\x00"),
		"lfs":            one("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"),
		"conflict":       one("package p\n\n<<<<<<< HEAD\njob: web: {}\n=======\njob: api: {}\n>>>>>>> theirs\n"),
	}
}

func manyPackages(n int) map[string]string {
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("f%d.cue", i)] = fmt.Sprintf("package p%d\n", i)
	}
	return files
}

// imported import what they may not.
func imported() map[string]map[string]string {
	imports := func(path string) map[string]string {
		return one(fmt.Sprintf("package p\n\nimport x %q\n\n_x: x\n", path))
	}
	many := "package p\n\n"
	for i := range 20_000 {
		many += fmt.Sprintf("import x%d \"example.com/config/absent/%d\"\n", i, i)
	}
	return map[string]map[string]string{
		"import-self":      imports("example.com/config/import-self:p"),
		"import-root":      imports("example.com/config"),
		"import-absent":    imports("example.com/config/nothing/here"),
		"import-up":        imports("example.com/config/../../etc"),
		"import-relative":  imports("./a"),
		"import-absolute":  imports("/etc"),
		"import-file":      imports("example.com/config/import-file/p.cue"),
		"import-empty":     imports(""),
		"import-backslash": imports("example.com/config\\good"),
		"import-colon":     imports("example.com/config/good:evil"),
		"import-version":   imports("example.com/config/good@v7"),
		"import-spaces":    imports("example.com/config/ good"),
		"import-many":      one(many),
		"remote":           imports("github.com/evil/module@v1"),
		"standard":         imports("stirngs"),
		"exec":             one(using("tool/exec") + "_x: exec.Run & {cmd: \"id\"}\njob: web: _x\n"),
		"file":             one(using("tool/file") + "_x: file.Read & {filename: \"/etc/passwd\", contents: string}\njob: web: user: _x.contents\n"),
		"http":             one(using("tool/http") + "_x: http.Get & {url: \"http://169.254.169.254/\"}\njob: web: user: _x.response.body\n"),
		"environment":      one(using("tool/os") + "_x: os.Getenv & {HOME: string}\njob: web: user: _x.HOME\n"),
		"if":               one("@if(production)\n\npackage p\n\njob: web: {}\n"),
		"ignore":           one("@ignore()\n\npackage p\n\njob: web: {}\n"),
		"tag":              one("package p\n\njob: web: user: string @tag(user)\n"),
		"tag-variable":     one("package p\n\njob: web: user: string @tag(user,var=username)\n"),
		"extern":           one("@extern(\"wasm\")\n\npackage p\n\njob: web: tasks: _ @extern(\"evil.wasm\", abi=c, sig=\"func(): int64\")\n"),
	}
}

// embedding embed what they may not, or what is too much.
func embedding() map[string]map[string]string {
	embeds := func(attribute string, more map[string]string) map[string]string {
		files := one("@extern(embed)\n\npackage p\n\n_x: _ @embed(" + attribute + ")\njob: web: labels: x: _x\n")
		maps.Copy(files, more)
		return files
	}
	many := map[string]string{}
	for i := range 20_000 {
		many[fmt.Sprintf("d/f%d.json", i)] = "{}"
	}
	return map[string]map[string]string{
		"embed-up":      embeds(`file="../../cue.mod/module.cue",type=text`, nil),
		"embed-beside":  embeds(`file="../good/a.cue",type=text`, nil),
		"embed-abs":     embeds(`file="/etc/passwd",type=text`, nil),
		"embed-absent":  embeds(`file="nothing.json"`, nil),
		"embed-dir":     embeds(`file="d"`, map[string]string{"d/x.json": "{}"}),
		"embed-glob-up": embeds(`glob="../*/*.json"`, nil),
		"embed-glob":    embeds(`glob="["`, nil),
		"embed-nothing": embeds(``, nil),
		"embed-many":    embeds(`glob="d/*.json"`, many),
		"embed-deep":    embeds(`file="d.json"`, map[string]string{"d.json": strings.Repeat("[", 1_000_000) + strings.Repeat("]", 1_000_000)}),
		"embed-laughs":  embeds(`file="d.yaml"`, map[string]string{"d.yaml": yamlLaughs()}),
		"embed-big":     embeds(`file="d.json"`, map[string]string{"d.json": "[" + strings.Repeat("{\"a\":[1,2,3]},", 4_000_000) + "1]"}),
		"embed-huge":    embeds(`file="d.txt",type=text`, map[string]string{"d.txt": strings.Repeat("x", 70<<20)}),
		"embed-binary":  embeds(`file="d.bin",type=binary`, map[string]string{"d.bin": "\x00\xff\xfe"}),
		"embed-text":    embeds(`file="d.bin",type=text`, map[string]string{"d.bin": "\x00\xff\xfe"}),
		"embed-cue":     embeds(`file="d.txt",type=cue`, map[string]string{"d.txt": "import \"tool/exec\"\nx: exec.Run\n"}),
		"embed-type":    embeds(`file="d.json",type=evil`, map[string]string{"d.json": "{}"}),
		"embed-broken":  embeds(`file="d.json"`, map[string]string{"d.json": "{\"a\": "}),
	}
}

// erroneous have many errors, or long ones.
func erroneous() map[string]map[string]string {
	lines := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format+"\n", i)
		}
		return b.String()
	}
	return map[string]map[string]string{
		"errors":         one("package p\n\n" + lines(100_000, "_a%d: 1 & 2")),
		"errors-jobs":    one("package p\n\n" + lines(20_000, "job: j%d: tsks: 3")),
		"errors-fields":  one("package p\n\njob: web: {\n" + lines(50_000, "f%d: 1") + "}\n"),
		"errors-kinds":   one("package p\n\n" + lines(50_000, "kind%d: {}")),
		"errors-syntax":  one("package p\n\n" + lines(100_000, "a%d = = 1")),
		"errors-missing": one("package p\n\n" + lines(50_000, "_a%d: nothing")),
		"error-long":     one(using("strings") + "job: web: user: strings.Repeat(\"x\", 5000000) & strings.Repeat(\"y\", 5000000)\n"),
		"error-labels":   one("package p\n\njob: web: " + strings.Repeat("\""+strings.Repeat("x", 1000)+"\": ", 20) + "1 & 2\n"),
		"error-lines":    one("package p\n\njob: web: user: \"" + strings.Repeat("\\n", 10000) + "\" & 3\n"),
	}
}

// disjunctions makes a product of n disjunctions of structs.
func disjunctions(n int) string {
	var b strings.Builder
	b.WriteString("_x: {}\n")
	for i := range n {
		fmt.Fprintf(&b, "_x: {a%d: 1, c?: int} | {a%d: 2, b%d: 3, c?: string} | {a%d: 3}\n", i, i, i, i)
	}
	return b.String()
}
