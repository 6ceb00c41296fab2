package terms_test

import (
	"fmt"
	"strings"
	"testing"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"

	"github.com/musterhq/muster/schema/compile/terms"
)

// TestSay says expressions in words.
func TestSay(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`int`:                              "an integer",
		`*2 | int`:                         "an integer (2 unless it is set)",
		`int & >=1 & <=10`:                 "an integer, at least 1 and at most 10",
		`*"production" | "batch" | "free"`: `"production", "batch" or "free"`,
		`"a" | string`:                     `"a" or text`,
		`or(["a", "b"])`:                   `"a" or "b"`,
		`=~"^/"`:                           `text that matches "^/"`,
		`!=""`:                             `not ""`,
		`[string, ...string]`:              "a list, each text, of at least 1",
		`{a: int}`:                         "a struct",
		`list.MinItems(1)`:                 "at least 1 element",
		`strings.MaxRunes(20)`:             "at most 20 characters",
		`>=3 | error("at least three")`:    "at least 3",
		`null | string`:                    "null or text",
		`bool`:                             "true or false",
		`*{a: 1} | {b: string}`:            "a struct",
		`a, b`:                             "a, b",
		`1|2|3|4|5|6|7|8|9|10|11|12|13|14`: "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 or 2 others",
		`(*1 | ((int))) & (>0)`:            "an integer (1 unless it is set) and more than 0",
		`matchN(1, [{#A, host!: string}, {url!: string, port: *80 | int, ...}])`: `exactly 1 of {#A, host!: string} or url (text)`,
		`matchIf({on!: true}, {cert!: string}, _)`:                               "cert (text) where it has on (true)",
		`matchIf({on!: true}, _, {why!: string})`:                                "why (text) unless it has on (true)",
		`matchIf({a!: 1}, {b!: int}, {c!: int})`:                                 "b (an integer) where it has a (1), else c (an integer)",
		`string & =~"^a" & strings.MinRunes(2)`:                                  `text, text that matches "^a" and at least 2 characters`,
	} {
		if got := terms.Say(text); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestOf gives no alternatives where there is but one value, or what is elsewhere.
func TestOf(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`"a"`, `x`, `lib.#Tier`, `3`, `"a\(b)"`} {
		e, err := parser.ParseExpr("-", text)
		if err != nil {
			t.Fatal(err)
		}
		if a, ok := terms.Of(e); ok {
			t.Errorf("%s: %+v", text, a)
		}
	}
}

// TestCheckAt finds checks, and what they look at.
func TestCheckAt(t *testing.T) {
	t.Parallel()
	f, err := parser.ParseFile("-", `#A: {
	tasks: int
	_check: true & (tasks >= 3)
	if task.env.A == "b" if user != "x" {
		_other: error("no b")
	}
	plain: 3
}
`)
	if err != nil {
		t.Fatal(err)
	}
	var found []terms.Check
	ast.Walk(f, func(n ast.Node) bool {
		switch n.(type) {
		case *ast.ParenExpr, *ast.CallExpr, *ast.BasicLit:
			if c, ok := terms.CheckAt(f, n.Pos()); ok {
				found = append(found, c)
			}
		}
		return true
	}, nil)
	var holds, message int
	for _, c := range found {
		if c.Holds == "tasks >= 3" && len(c.Looks) == 1 && c.Looks[0][0] == "tasks" {
			holds++
		}
		if c.Message == "no b" && len(c.Looks) == 2 && c.Looks[0][0] == "user" && c.Looks[1][2] == "A" {
			message++
		}
	}
	if holds == 0 || message == 0 {
		t.Errorf("%+v", found)
	}
}

// TestLooks has names for what a check looks at: aliases, let clauses, hidden fields, what a comprehension goes through.
func TestLooks(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`all=task: {n: int}, let r = all.n, if kind == "a" && r > 3 {_a: error("a")}`:             `[task n] [kind]`,
		`t: X={a: int, _a: true & (X.a < 3)}`:                                                     `[a]`,
		`a: int, _n: a * b, _a: true & (_n < 3)`:                                                  `[a] [b] [_n]`,
		`for k, d in disks for p in d.parts if p.gib > 500 {_a: error("a")}`:                      `[disks *d parts *p gib]`,
		`_on: true & list.Contains(names, on)`:                                                    `[on] [list Contains] [names]`,
		`if rows[at.row] == _|_ {_a: error("a")}`:                                                 `[at row] [rows]`,
		`if len(cells) > 3 {_a: error("a")}, cells: [...], for k, d in disks {_b: error("\(k)")}`: `[len] [cells]`,
	} {
		f, err := parser.ParseFile("-", text)
		if err != nil {
			t.Fatal(err)
		}
		at := strings.Index(text, "error(")
		if at < 0 {
			at = strings.Index(text, "true")
		}
		c, ok := terms.CheckAt(f, f.Pos().File().Pos(at, 0))
		if got := strings.Trim(fmt.Sprint(c.Looks), "[]"); !ok || got != strings.Trim(want, "[]") {
			t.Errorf("%s: %v, want %s", text, c.Looks, want)
		}
	}
}

// TestReached asks with which elements a check is reached.
func TestReached(t *testing.T) {
	t.Parallel()
	const src = `for d in disks if d.ssd for k, p in d.parts { if p > 5 {_a: error("a")} }`
	f, err := parser.ParseFile("-", src)
	if err != nil {
		t.Fatal(err)
	}
	c, _ := terms.CheckAt(f, f.Pos().File().Pos(strings.Index(src, "error"), 0))
	text, variables, _ := c.Reached()
	if want := "[for at0_, d in disks if d.ssd for k, p in d.parts if p > 5 { [at0_, k] }]"; text != want || fmt.Sprint(variables) != "[d p]" {
		t.Errorf("%s %v, want %s", text, variables, want)
	}
}

// TestExclusive finds bounds that exclude each other.
func TestExclusive(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`*128 | int & >=4096 & <=32`: ">=4096 <=32",
		`int & <1Ki & >=1024`:        ">=1024 <1Ki",
		`>0.5 & <=-1.5`:              ">0.5 <=-1.5",
		`>=3 & <=3`:                  "",
		`>=3 & <a`:                   "",
		`<=3 | >=5`:                  "",
		`>=1 & <=1Gi`:                "",
	} {
		e, err := parser.ParseExpr("-", text)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if low, high, ok := terms.Exclusive(e); ok {
			got = terms.Text(low) + " " + terms.Text(high)
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestUses finds what CUE does not look at of itself, in one of several files.
func TestUses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]bool{
		`a: (#Make & {in: 1}).out`:            {true, false},
		`#A: matchIf({a!: 1}, {b!: 2}, _)`:    {false, true},
		`a: (b).c, d: matchN(1, [{e!: int}])`: {true, true},
		`matchN: 1, a: b.c, d: (1), e: [2]`:   {false, false},
	} {
		var files []*ast.File
		for _, src := range []string{"first: 1", text, "last: 2"} {
			f, err := parser.ParseFile("-", src)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		if functions, matches := terms.Uses(files); functions != want[0] || matches != want[1] {
			t.Errorf("%s: functions %v, calls of matchN %v", text, functions, matches)
		}
	}
}

// TestExample has values that stand in for wrong ones.
func TestExample(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`"a" | "b"`: `"a" false`, `"a" | *"b"`: `"b" false`, `string | *"b"`: `"b" true`, `*2 | int & >=1`: `2 true`, `int & >=3 & <=9`: `9 false`, `<=50`: `50 false`, `>=16Mi`: `16Mi false`,
		`int`: `1 false`, `bool`: `false false`, `string`: `"no" false`, `=~"^a"`: ` false`, `string & =~"^a"`: ` false`, `[...string]`: `[] false`, `{a: 1}`: ` false`, ``: ` false`,
	} {
		if value, isDefault := terms.Example(text, "no"); fmt.Sprint(value, " ", isDefault) != want {
			t.Errorf("%s: %s %v, want %s", text, value, isDefault, want)
		}
	}
}
