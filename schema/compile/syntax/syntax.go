package syntax

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"cuelang.org/go/cue/token"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/lazyregexp"
)

// syntaxRule recognises one way of writing what is not CUE. It looks at the word with
// index i, where the parser gave up, and changes the diagnostic if it knows
// better: where the mistake is, what it is, and how it is written.
type syntaxRule func(s *File, i int, d *schema.Diagnostic) bool

// syntaxRules are tried in this order; the first that knows better is taken. The
// order is from what cannot be mistaken to what is likely.
var syntaxRules = []syntaxRule{
	mergeMarker, badCharacter, badText, hashComment, blockComment, yamlDocument, yamlList, yamlBlock,
	packageName, importForm, letForm, elseForm, equalsSign, loopForm, missingBraces, bareLabel, numberUnit, strayQuote,
	ternary, spread, blockForm, missingAnd, twice, brackets, missingComma,
}

// Explain says what a message of the parser, at the position of d, is about.
func (s *File) Explain(d *schema.Diagnostic) {
	i := s.at(d.Line, d.Column)
	for _, known := range syntaxRules {
		if known(s, i, d) {
			return
		}
	}
	d.Message = plainSyntax(d.Message)
}

func (s *File) say(d *schema.Diagnostic, w word, message, hint string) bool {
	if w.line > 0 { // else the file has ended, which is where the parser gave up
		d.Position = s.pos(w)
	}
	d.Message, d.Hint = message, hint
	return true
}

func mergeMarker(s *File, _ int, d *schema.Diagnostic) bool {
	for n, line := range s.lines {
		if strings.HasPrefix(line, "<<<<<<< ") || strings.HasPrefix(line, ">>>>>>> ") {
			return s.say(d, word{line: n + 1, col: 1}, "the file contains a merge conflict", "keep one side, and remove the conflict markers")
		}
	}
	return false
}

// lookalikes are characters that look like the ones that CUE has.
var lookalikes = map[rune]string{
	'“': `"`, '”': `"`, '„': `"`, '«': `"`, '»': `"`, '‘': `"`, '’': `"`, '＂': `"`, '，': ",", '：': ":", '；': ",",
	'｛': "{", '｝': "}", '［': "[", '］': "]", '–': "-", '—': "-", '−': "-", '…': "...", '＝': ":", '＆': "&",
}

func badCharacter(s *File, _ int, d *schema.Diagnostic) bool {
	rest := ""
	if d.Line >= 1 && d.Line <= len(s.lines) && d.Column >= 1 && d.Column <= len(s.lines[d.Line-1]) {
		rest = s.lines[d.Line-1][d.Column-1:]
	}
	r, _ := utf8.DecodeRuneInString(rest)
	switch {
	case r == ';':
		d.Message, d.Hint = "a semicolon does not end a field", "fields on one line are separated by commas, others by the line's end"
		return true
	case !strings.HasPrefix(d.Message, "illegal character"):
		return false
	case lookalikes[r] != "":
		d.Message, d.Hint = fmt.Sprintf("the character %c (%U) is not allowed in CUE", r, r), "write "+lookalikes[r]
	case r == '`':
		d.Message, d.Hint = "a backquote does not start text", `text is written in double quotes; text of several lines between """ and """`
	case r == '%':
		d.Message, d.Hint = "a percent sign is not allowed in CUE", "write the number in the unit of the field"
	case unicode.IsDigit(r):
		d.Message, d.Hint = fmt.Sprintf("%c (%U) is not a digit in CUE", r, r), "write the digits 0 to 9"
	case rest == "" || r == 0:
		d.Rule, d.Message, d.Hint = schema.RuleRepository, "the file has a NUL character", "save it as plain text in UTF-8"
	case !unicode.IsGraphic(r):
		d.Rule, d.Message, d.Hint = schema.RuleRepository, fmt.Sprintf("the file has an invisible character (%U)", r), "remove it: it is just before the marked position"
	default:
		d.Message, d.Hint = fmt.Sprintf("the character %c (%U) is not allowed in CUE", r, r), ""
	}
	return true
}

// badText is of the inside of text and numbers.
func badText(s *File, _ int, d *schema.Diagnostic) bool {
	has := func(t string) bool { return strings.Contains(d.Message, t) }
	switch {
	case has("string literal not terminated"):
		d.Message, d.Hint = "the text is not closed on its line", `add the closing quote; text of several lines is written between """ and """`
		if l := s.lines[d.Line-1]; d.Column <= len(l) && strings.HasPrefix(l[d.Column-1:], `\(`) {
			d.Message, d.Hint = `a \( is not closed`, `a value within text is written \(NAME)`
		}
	case has("unknown escape sequence"):
		d.Message, d.Hint = "unknown escape sequence", `write \\ for a backslash, or #"…"# around text that has many`
	case has("expected newline after multiline quote"):
		d.Message, d.Hint = `text of several lines begins on the line after """`, `text on one line is written in single double quotes: "a"`
	case has("non-matching whitespace for multiline"):
		d.Message, d.Hint = `a line of this text is indented less than the """ that closes it`, "indent each line at least as far as the closing mark"
	case has("illegal integer number"):
		d.Message, d.Hint = "a number does not begin with 0", "write it without the 0; octal numbers are written 0o17"
	case has("in number"):
		d.Message, d.Hint = "the number has a _ that is not between two digits", ""
	case has("invalid attribute"):
		i := s.at(d.Line, d.Column)
		for j := i; j >= 0 && j >= i-3; j-- {
			if w := s.word(j); w.tok == token.ATTRIBUTE || strings.HasPrefix(w.text, "@") {
				d.Position = s.pos(w)
			}
		}
		d.Message, d.Hint = "an attribute needs parentheses", "write @NAME(…), or remove it: muster reads only @embed(…)"
	default:
		return false
	}
	return true
}

func hashComment(s *File, i int, d *schema.Diagnostic) bool {
	for j := max(0, i-2); j <= i; j++ {
		w := s.word(j)
		if !strings.HasPrefix(w.text, "#") || w.tok == token.STRING {
			continue
		}
		alone := w.text == "#" && !s.joined(j)
		begins := s.first(w.line) == j && j < i && s.word(i).line == w.line && isOperand(s.word(j+1))
		if alone || begins {
			return s.say(d, w, "a comment begins with //", "write // instead of #")
		}
	}
	return false
}

func blockComment(s *File, i int, d *schema.Diagnostic) bool {
	for j := max(0, i-1); j <= i; j++ {
		if s.word(j).tok == token.QUO && s.word(j+1).tok == token.MUL && s.joined(j) {
			return s.say(d, s.word(j), "a comment begins with //", "write // at the beginning of each line of it")
		}
	}
	return false
}

func yamlDocument(s *File, i int, d *schema.Diagnostic) bool {
	for n := 1; n <= s.word(i).line || n <= d.Line; n++ {
		if s.line(n) == "---" {
			return s.say(d, word{line: n, col: 1}, "--- separates documents of YAML", "this file is CUE: remove the line")
		}
	}
	return false
}

func yamlList(s *File, _ int, d *schema.Diagnostic) bool {
	for n := d.Line; n > 0 && n >= d.Line-1; n-- {
		if strings.HasPrefix(s.line(n), "- ") {
			return s.say(d, s.word(s.first(n)), "a list is not written with -", `a list is written in brackets: ["a", "b"]`)
		}
	}
	return false
}

func yamlBlock(s *File, i int, d *schema.Diagnostic) bool {
	for j := max(0, i-1); j <= i; j++ {
		if w := s.word(j); (w.tok == token.OR || w.tok == token.GTR) && strings.HasSuffix(s.line(w.line), w.text) && !isOperand(s.word(j-1)) {
			return s.say(d, w, fmt.Sprintf("%s does not start text", w.text), `text of several lines is written between """ and """`)
		}
	}
	return false
}

func packageName(s *File, _ int, d *schema.Diagnostic) bool {
	n := min(d.Line, len(s.lines))
	first := s.first(n)
	if s.word(first).text != "package" {
		return false
	}
	name := strings.TrimSpace(strings.TrimPrefix(s.line(n), "package"))
	return s.say(d, s.word(first+1), fmt.Sprintf("%s cannot be the name of a package", name), "write: package "+PackageFor(path.Clean(strings.Trim(name, `"'#`))))
}

func importForm(s *File, i int, d *schema.Diagnostic) bool {
	first := s.first(d.Line)
	switch w := s.word(first); {
	case w.text == "import" && strings.HasPrefix(d.Message, "expected 'STRING'"):
		d.Rule = schema.RuleInvalidName
		target := strings.TrimSpace(strings.TrimPrefix(s.line(d.Line), "import"))
		if quoted, ok := strings.CutPrefix(target, ":"); ok {
			return s.say(d, s.word(first+1), "an import is written without a colon", fmt.Sprintf("write: import %q", strings.Trim(quoted, ` "`)))
		}
		return s.say(d, s.word(first+1), "the path of an import is not in quotes", fmt.Sprintf("write: import %q", target))
	case w.text == "import" && i == first+1 && isOperand(s.word(i)):
		d.Rule = schema.RuleImport
		return s.say(d, w, "the import is below other fields", "move it to the top of the file, below the package clause")
	case w.text == "from" && s.word(first+1).tok == token.STRING:
		return s.say(d, w, "CUE has no from", fmt.Sprintf("write: import %s and then PACKAGE.#NAME", s.word(first+1).text))
	}
	return false
}

func letForm(s *File, i int, d *schema.Diagnostic) bool {
	first := s.first(d.Line)
	name := s.word(first + 1)
	switch w := s.word(first); {
	case w.text == "let" && s.word(i).tok == token.COLON:
		return s.say(d, s.word(i), "a let clause is written with =, not with a colon", fmt.Sprintf("write: let %s = …", name.text))
	case (w.text == "var" || w.text == "const" || w.text == "local" || w.text == "set") && name.tok == token.IDENT && s.word(first+2).tok == token.BIND:
		return s.say(d, w, fmt.Sprintf("CUE has no %s", w.text), fmt.Sprintf("write: let %s = …, or a hidden field: _%s: …", name.text, name.text))
	}
	return false
}

func elseForm(s *File, i int, d *schema.Diagnostic) bool {
	if w := s.word(i); strings.HasPrefix(d.Message, "else ") || w.text == "else" {
		for ; i < len(s.words) && s.word(i).text != "else"; i++ {
		}
		return s.say(d, s.word(i), "CUE has no else", "write a second if with the condition reversed: if !CONDITION {…}")
	}
	return false
}

// equalsSign looks on the line before too: name = value is an alias to the
// parser, which then stumbles over what follows.
func equalsSign(s *File, i int, d *schema.Diagnostic) bool {
	for j, w := range s.words {
		label := s.word(j - 1)
		if w.tok != token.BIND || w.line < d.Line-1 || w.line > d.Line || j > i+2 || !isName(label) {
			continue
		}
		first := s.word(s.first(w.line))
		switch {
		case first.text == "let":
		case first.text == "if":
			return s.say(d, w, "= is not a comparison", "write == in a condition")
		case s.word(j+1).tok == token.GTR:
			return s.say(d, w, "a field is written with a colon, not with =>", fmt.Sprintf("write: %s: …", label.text))
		case label.text == "int" || label.text == "string" || label.text == "bool" || label.text == "number":
			return s.say(d, w, "a default is not written with =", fmt.Sprintf("write: *%s | %s", s.word(j+1).text, label.text))
		default:
			return s.say(d, w, "a field is written with a colon, not with =", fmt.Sprintf("write: %s: …", label.text))
		}
	}
	return false
}

func loopForm(s *File, i int, d *schema.Diagnostic) bool {
	switch w := s.word(i); {
	case strings.HasPrefix(d.Message, "expected 'in'"):
		return s.say(d, w, fmt.Sprintf("for is written with in, not with %s", w.text), "write: for NAME in LIST {…}")
	case strings.HasPrefix(d.Message, "expected '{'"):
		return s.say(d, w, "the body of for and if must be in braces", "write: if CONDITION {…}, for NAME in LIST {…}")
	}
	return false
}

// missingBraces is a struct after & whose brace was forgotten.
func missingBraces(s *File, i int, d *schema.Diagnostic) bool {
	if s.word(i).tok == token.COLON && s.word(i-2).tok == token.AND && isName(s.word(i-1)) {
		return s.say(d, s.word(i-2), "the struct after & has no opening brace", "write: & {")
	}
	return false
}

// UnusedLet adds to what is said of an unused let clause, of the name at the position of
// d, what was probably meant.
func (s *File) UnusedLet(d *schema.Diagnostic) { _ = equalsSign(s, s.at(d.Line, d.Column)+1, d) }

// IsPlainWord reports whether text is what people write without quotes.
func IsPlainWord(text string) bool { return plainWord.MatchString(text) }

var plainWord = lazyregexp.New(`^[A-Za-z0-9_./@+-]+$`)

// bareLabel is a name with characters that only a quoted name may have.
func bareLabel(s *File, i int, d *schema.Diagnostic) bool {
	if s.word(i).tok != token.COLON {
		return false
	}
	from := i - 1
	for s.joined(from-1) && plainWord.MatchString(s.word(from-1).text) && s.word(from-1).tok != token.COLON {
		from--
	}
	first, last := s.word(from), s.word(i-1)
	if !s.begins(from) {
		if s.word(i-2).tok == token.ADD {
			return s.say(d, s.word(i-2), "a computed name is not in parentheses", `write ("web-" + x): …, or interpolate: "web-\(x)": …`)
		}
		return false
	}
	text := s.lines[first.line-1][first.col-1 : min(len(s.lines[first.line-1]), first.col-1+last.to-first.from)]
	if from == i-1 && !isNumber(first) || !plainWord.MatchString(text) {
		return false
	}
	d.Rule = schema.RuleInvalidName
	return s.say(d, first, fmt.Sprintf("the name %s is not in quotes", text), fmt.Sprintf("names with other characters than letters, digits and _ need them: %q", text))
}

var bytesUnit = lazyregexp.New(`(?i)^([kmgtpe])(i?)b?$`)

// numberUnit is a number with a unit that CUE does not have.
func numberUnit(s *File, i int, d *schema.Diagnostic) bool {
	n, unit := s.word(i-1), s.word(i)
	if !isNumber(n) || unit.tok != token.IDENT || unit.line != n.line {
		return false
	}
	suffix := ""
	digits := strings.TrimRight(n.text, "KMGTPEi")
	written := n.text + unit.text
	if m := bytesUnit.FindStringSubmatch(strings.TrimPrefix(n.text, digits) + unit.text); m != nil {
		suffix = strings.ToUpper(m[1]) + strings.ToLower(m[2])
	}
	hint, seconds := "a number is written without a unit: it is in the name of the field", false
	switch unit.text {
	case "m":
		hint = "a number is written without a unit: cpuMilli is in thousandths of a core, …Seconds in seconds"
	case "s", "sec", "secs", "seconds":
		hint, seconds = "a number of seconds is written without a unit: "+digits, true
	default:
		if suffix != "" {
			hint = "a number of bytes is written 64Mi or 64M, without B: " + digits + suffix
		}
	}
	if !s.joined(i-1) && suffix == "" && !seconds {
		return false
	}
	return s.say(d, n, written+" is not a number", hint)
}

// strayQuote is text that ends where a word begins: a quote is missing before.
func strayQuote(s *File, i int, d *schema.Diagnostic) bool {
	before, w := s.word(i-1), s.word(i)
	switch {
	case before.tok == token.STRING && s.joined(i-1) && isOperand(w):
		return s.say(d, before, "a quote is missing: this text ends before "+short(w.text), "close each text with a quote")
	case before.tok == token.IDENT && s.joined(i-1) && (w.tok == token.STRING || w.tok == token.INTERPOLATION):
		return s.say(d, before, fmt.Sprintf("%s is not allowed before text", short(before.text)), `a value within text is written \(NAME): "v\(x)"`)
	}
	return false
}

func ternary(s *File, i int, d *schema.Diagnostic) bool {
	for j := max(0, i-1); j <= i; j++ {
		if w := s.word(j); w.tok == token.OPTION && isOperand(s.word(j+1)) {
			return s.say(d, w, "CUE has no ?: operator", "write: [if CONDITION {A}, B][0], or two fields in if CONDITION {…}")
		}
	}
	return false
}

func spread(s *File, i int, d *schema.Diagnostic) bool {
	for j := max(0, i-1); j <= i; j++ {
		if w := s.word(j); w.tok == token.ELLIPSIS && s.joined(j) && s.word(j+1).tok != token.RBRACE && s.word(j+1).tok != token.RBRACK {
			return s.say(d, w, "... does not copy the fields of a struct", "write the struct itself, without the dots, or join both with &")
		}
	}
	return false
}

// blockForm is a field without its colon, as HCL writes blocks.
func blockForm(s *File, i int, d *schema.Diagnostic) bool {
	name, w := s.word(i-1), s.word(i)
	if !isName(name) || !s.begins(i-1) || name.line != w.line || s.listed(i) || !isName(w) && w.tok != token.LBRACE {
		return false
	}
	if s.word(i-2).tok == token.COLON && w.tok != token.LBRACE {
		return false
	}
	rest := w.text
	if w.tok == token.LBRACE {
		rest = "{…}"
	} else if s.word(i+1).tok == token.LBRACE {
		rest += ": {…}"
	}
	return s.say(d, w, fmt.Sprintf("a colon is missing after %s", name.text), fmt.Sprintf("write: %s: %s", name.text, short(rest)))
}

// missingAnd is a definition beside the struct that it is to be joined with.
func missingAnd(s *File, i int, d *schema.Diagnostic) bool {
	w := s.word(i)
	if w.tok != token.LBRACE || s.word(i-1).tok != token.IDENT || s.word(i-1).line != w.line {
		return false
	}
	return s.say(d, w, fmt.Sprintf("an & is missing between %s and {", s.word(i-1).text), "a definition and a struct are joined: muster.#Job & {…}")
}

func twice(s *File, i int, d *schema.Diagnostic) bool {
	w := s.word(i)
	if (w.tok == token.COMMA || w.tok == token.COLON) && w.tok == s.word(i-1).tok && w.text != "\n" {
		return s.say(d, w, fmt.Sprintf("%s is repeated", w.text), "remove one")
	}
	return false
}

func brackets(s *File, i int, d *schema.Diagnostic) bool {
	w := s.word(i)
	closer := w.tok == token.RBRACE || w.tok == token.RBRACK || w.tok == token.RPAREN
	if !closer && !strings.Contains(d.Message, "'EOF'") {
		return false
	}
	open, found, ok := s.unbalanced()
	switch {
	case !ok:
		return false
	case open.tok == 0:
		return s.say(d, found, fmt.Sprintf("unmatched %s", found.text), "remove it, or look for an extra one above")
	case found.tok == token.EOF:
		return s.say(d, open, fmt.Sprintf("this %s is not closed", bracket(open)), "add the closing bracket")
	}
	return s.say(d, found, fmt.Sprintf("found %s, but the %s at %d:%d is not closed", found.text, bracket(open), open.line, open.col), "close that one first")
}

func bracket(w word) string { return w.tok.String() }

func missingComma(s *File, i int, d *schema.Diagnostic) bool {
	if !strings.HasPrefix(d.Message, "missing ','") {
		return false
	}
	w := s.word(i)
	switch {
	case strings.Contains(d.Message, "before newline"):
		d.Message, d.Hint = "a comma is missing at the end of the line", "elements of a list are separated by commas"
	case w.tok == token.EOF:
		return false
	case isOperand(w) || w.tok == token.LBRACE || w.tok == token.LBRACK:
		d.Message, d.Hint = fmt.Sprintf("a comma is missing before %s", short(w.text)), "fields and elements on one line are separated by commas"
	default:
		d.Message, d.Hint = fmt.Sprintf("%s is not allowed here", short(w.text)), "fields and elements on one line are separated by commas"
	}
	return true
}

var foundForm = lazyregexp.New(`^expected (.*), found (?:'([^']*)' ?(.*)|newline)$`)

// plainSyntax writes a message of the parser without the names of its tokens.
func plainSyntax(message string) string {
	m := foundForm.FindStringSubmatch(message)
	if m == nil {
		return message
	}
	names := map[string]string{
		"operand": "a value", "label or ':'": "a name or a colon", "'IDENT'": "a name", "'STRING'": "text in quotes", "','": "a comma",
		"'EOF'": "the end of the file", "selector": "a name after the dot", "expression": "a value", "EOF": "the end of the file",
	}
	name := func(s string) string {
		if n, ok := names[s]; ok {
			return n
		}
		return s
	}
	found := name(m[2])
	if m[3] != "" {
		found = short(m[3])
	}
	if found == "" {
		found = "the end of the line"
	}
	return fmt.Sprintf("found %s instead of %s", found, name(m[1]))
}

// short returns a word of a file as far as it fits a message.
func short(s string) string {
	const most = 40
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "…"
	}
	if u, err := strconv.Unquote(s); err == nil && strings.ContainsFunc(u, unicode.IsControl) {
		return strconv.Quote(u)
	}
	return s
}

// IsError reports whether an error is one of the parser's.
func IsError(message string) bool {
	for _, prefix := range []string{
		"expected ", "missing ','", "illegal ", "string literal not", "unknown escape", "non-matching", "invalid attribute", "else requires",
		"invalid package name", "found ",
	} {
		if strings.HasPrefix(message, prefix) {
			return true
		}
	}
	return false
}

// PackageFor returns a package name that suits a directory.
func PackageFor(dir string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, path.Base(dir))
	if name == "" || name[0] <= '9' || slices.Contains([]string{"package", "import", "for", "in", "if", "let", "true", "false", "null"}, name) {
		return "config"
	}
	return name
}
