package compile

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/inject/embed"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"
	cuejson "cuelang.org/go/encoding/json"
	"cuelang.org/go/encoding/toml"

	"github.com/musterhq/muster/schema"
)

// maxExponent is the largest exponent of a number in CUE, up and down, where it has one digit before the
// point (apd.MaxExponent). What is beyond becomes another number, without an error: 1e100001 is 1.0.
const maxExponent = 100_000

// maxNumbers is how many such numbers of a package are reported.
const maxNumbers = 20

// shownNumber is how many bytes of a number a message quotes.
const shownNumber = 24

// unrepresentable returns the numbers in the files of a package, and in those that it imports and
// embeds, that CUE would take for others. of returns those of CUE, which are parsed again only if any file may
// have such a number.
func unrepresentable(req request, of func(request) []*ast.File) (found []schema.Diagnostic) {
	var files []*ast.File
	for _, name := range slices.Sorted(maps.Keys(req.Files)) {
		if !longNumber(req.Files[name]) {
			continue // as nearly all
		}
		if files == nil {
			files = of(req)
		}
		for _, n := range parsedForNumbers(name, readAs(name, files), req.Files[name]) {
			ast.Walk(n.node, func(node ast.Node) bool {
				lit, ok := node.(*ast.BasicLit)
				if !ok || lit.Kind != token.INT && lit.Kind != token.FLOAT || representable(lit.Value) {
					return true
				}
				at := position(lit.Pos())
				at.Path, at.Line = name, at.Line+n.after
				text := lit.Value
				if len(text) > shownNumber {
					text = text[:shownNumber] + "…"
				}
				found = append(found, schema.Diagnostic{
					Severity: schema.Error, Rule: schema.RuleOutOfRange, Position: at,
					Message:  fmt.Sprintf("the number %s is beyond what CUE can hold, which would take it for another one", text),
					Expected: fmt.Sprintf("at most %d digits before the decimal point, and as many after it", maxExponent),
					Hint:     "correct its exponent, or write it as text",
				})
				return true
			}, nil)
		}
	}
	return found
}

// numbers is a part of a file, after so many lines.
type numbers struct {
	node  ast.Node
	after int
}

// readAs returns as what a file is read by files of CUE, which may be it, or embed it: the end of the names of such
// files; "" if these do not read it, or only as text or bytes.
func readAs(name string, files []*ast.File) (ext string) {
	for _, f := range files {
		file := strings.TrimPrefix(f.Filename, "/")
		if file == name {
			return path.Ext(name)
		}
		attributes, _ := embed.EmbeddedPaths(file, f) // what is wrong there is reported elsewhere
		for _, at := range attributes {
			switch {
			case !at.Matches(name) || at.Type == "text" || at.Type == "binary":
			case at.Type == "":
				ext = path.Ext(name)
			default:
				ext = "." + at.Type
			}
		}
	}
	return ext
}

// parsedForNumbers returns the parts of a file that is read as those whose names end so; none of one that is not
// parsed: what is wrong with it is found elsewhere, and text has no numbers. In YAML such a number is text to
// begin with.
func parsedForNumbers(name, ext string, data []byte) (out []numbers) {
	add := func(n ast.Node, err error, after int) {
		if err == nil {
			out = append(out, numbers{n, after})
		}
	}
	switch ext {
	case ".cue":
		f, err := parser.ParseFile(name, data)
		add(f, err, 0)
	case ".json":
		x, err := cuejson.Extract(name, data)
		add(x, err, 0)
	case ".jsonl", ".ldjson", ".ndjson":
		for i, line := range bytes.Split(data, []byte("\n")) {
			if longNumber(line) {
				x, err := cuejson.Extract(name, line)
				add(x, err, i)
			}
		}
	case ".toml":
		x, err := toml.NewDecoder(name, bytes.NewReader(data)).Decode()
		add(x, err, 0)
	}
	return out
}

// longNumber reports whether a file may have a number that is not representable: five digits of an
// exponent, or very many.
func longNumber(data []byte) bool {
	digits, exponent := 0, -1 // bytes since it began; exponent is -1 outside of one
	for i, c := range data {
		switch {
		case c >= '0' && c <= '9' || c == '_' || c == '.':
			digits++
			if exponent >= 0 {
				exponent++
			}
			if digits > maxExponent-10_000 || exponent >= 5 { // with one of four it may be as much
				return true
			}
		case (c == 'e' || c == 'E') && digits > 0 && exponent < 0:
			exponent = 0
		case (c == '+' || c == '-') && exponent == 0 && (data[i-1] == 'e' || data[i-1] == 'E'):
		default:
			digits, exponent = 0, -1
		}
	}
	return false
}

// representable reports whether CUE holds a number as it is written.
func representable(text string) bool {
	text = strings.ToLower(strings.ReplaceAll(text, "_", ""))
	if len(text) > 1 && text[0] == '0' && strings.ContainsRune("xob", rune(text[1])) {
		return len(text) < maxExponent // of another base, which has no exponent
	}
	mantissa, power, _ := strings.Cut(text, "e")
	exponent := 0
	if power != "" {
		n, err := strconv.Atoi(power)
		if err != nil {
			n = math.MaxInt32 // more digits than an int
		}
		exponent = n
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := max(1, len(strings.TrimLeft(whole+fraction, "0")))
	first := exponent - len(fraction) + digits - 1 // of the first digit
	return max(exponent, -exponent, len(fraction), first, -first) <= maxExponent
}
