package compile

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/inject/embed"
	"cuelang.org/go/cue/literal"
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
			for _, lit := range beyond(n.node) {
				at := position(lit.Pos())
				at.Path, at.Line = name, at.Line+n.after
				found = append(found, beyondAt(at, lit.Value))
			}
			for _, read := range readTexts(n.node) {
				for _, n := range parsedForNumbers(name, read.ext, []byte(read.text)) {
					for _, lit := range beyond(n.node) {
						at := position(read.at)
						at.Path = name
						found = append(found, beyondAt(at, lit.Value))
					}
				}
			}
		}
	}
	return found
}

// beyondAt says of a number that CUE cannot hold it.
func beyondAt(at schema.Position, text string) schema.Diagnostic {
	if len(text) > shownNumber {
		text = text[:shownNumber] + "…"
	}
	return schema.Diagnostic{
		Severity: schema.Error, Rule: schema.RuleOutOfRange, Position: at,
		Message:  fmt.Sprintf("the number %s is beyond what CUE can hold, which would take it for another one", text),
		Expected: fmt.Sprintf("at most %d digits before the decimal point, and as many after it", maxExponent),
		Hint:     "correct its exponent, or write it as text",
	}
}

// beyond returns the numbers below a node that CUE would take for others.
func beyond(n ast.Node) (out []*ast.BasicLit) {
	ast.Walk(n, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && (lit.Kind == token.INT || lit.Kind == token.FLOAT) && !representable(lit.Value) {
			out = append(out, lit)
		}
		return true
	}, nil)
	return out
}

// readText is a text that a file has CUE read as data.
type readText struct {
	ext, text string // as what, by the end of the name of such a file; "" if the text is not written there
	at        token.Pos
}

// readers are the packages that read text with numbers, and as what.
var readers = map[string]string{"encoding/json": ".json", "encoding/toml": ".toml"}

// readTexts returns what a file gives to json.Unmarshal and the like.
func readTexts(n ast.Node) (out []readText) {
	f, ok := n.(*ast.File)
	if !ok {
		return nil
	}
	names := map[string]string{}
	for spec := range f.ImportSpecs() {
		of, _ := strconv.Unquote(spec.Path.Value) // "" imports nothing
		name := path.Base(of)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		names[name] = readers[of]
	}
	ast.Walk(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		fun, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		of, _ := fun.X.(*ast.Ident)
		sel, _, err := ast.LabelName(fun.Sel)
		if of == nil || err != nil || !strings.HasPrefix(sel, "Unmarshal") || names[of.Name] == "" {
			return true
		}
		read := readText{ext: names[of.Name], at: call.Args[0].Pos()}
		if lit, ok := call.Args[0].(*ast.BasicLit); ok {
			read.text, _ = literal.Unquote(lit.Value) // what is no text is an error elsewhere
		}
		out = append(out, read)
		return true
	}, nil)
	return out
}

// numbers is a part of a file, after so many lines.
type numbers struct {
	node  ast.Node
	after int
}

// readAs returns as what a file is read by files of CUE, which may be it, or embed it: the end of the names of such
// files; "" if these do not read it, or only as text or bytes that the file reads no further.
func readAs(name string, files []*ast.File) (ext string) {
	for _, f := range files {
		file := strings.TrimPrefix(f.Filename, "/")
		if file == name {
			return path.Ext(name)
		}
		attributes, _ := embed.EmbeddedPaths(file, f) // what is wrong there is reported elsewhere
		texts := 0                                    // of several it is not known which one is read
		for _, at := range attributes {
			if at.Type == "text" || at.Type == "binary" {
				texts++
			}
		}
		for _, at := range attributes {
			switch {
			case !at.Matches(name):
			case at.Type == "text" || at.Type == "binary":
				for _, read := range readTexts(f) {
					if read.text == "" && texts == 1 {
						ext = cmp.Or(ext, read.ext)
					}
				}
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
