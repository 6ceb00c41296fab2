package compile

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/parser"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/lax"
	"github.com/musterhq/muster/schema/compile/syntax"
	"github.com/musterhq/muster/schema/compile/terms"
	"github.com/musterhq/muster/schema/compile/trace"
	"github.com/musterhq/muster/schema/lazyregexp"
	"github.com/musterhq/muster/schema/valid"
)

// What CUE says is said in the words of a user here: what is wrong, what was
// expected, what to do.

var (
	unresolved  = lazyregexp.New(`^reference "([^"]*)" not found$`)
	undefined   = lazyregexp.New(`^undefined field: ("[^"]*"|[^ ]+)$`)
	nested      = lazyregexp.New(`^(?:invalid interpolation: (?:[^ ]+: )?(.*)|error in call to [^ :]+: [0-9]+: (conflicting values .*))$`)
	twoTypes    = lazyregexp.New(`^conflicting values (.*) and (.*) \(mismatched types .*\)$`)
	twoValues   = lazyregexp.New(`^conflicting values (.*) and (.*)$`)
	outOfBound  = lazyregexp.New(`^invalid value (.*) \((?:out of bound|does not satisfy) (.*?)\)(?:: (.*))?$`)
	badEmbed    = lazyregexp.New(`^(?:@embed: )?invalid ([A-Za-z]+) for file "([^"]*)": (.*)$`)
	badYAML     = lazyregexp.New(`^@embed: failed to decode file: ([^:]+):([0-9]+): (.*)$`)
	keyTwice    = lazyregexp.New(`^@embed: ([^ :]+): conflicting values (.*) and (.*)$`)
	noBounds    = lazyregexp.New(`^incompatible (?:[a-z]+ )?bounds (.*) and (.*)$`)
	badRegexp   = lazyregexp.New("^invalid regexp: error parsing regexp: (.*): `(.*)`$")
	noEmbedded  = lazyregexp.New(`^@embed: open (.*): no such file or directory$`)
	farEmbedded = lazyregexp.New(`^@embed: cannot refer to parent directory$`)
	unused      = lazyregexp.New(`^imported and not used: (.*)$`)
	redeclared  = lazyregexp.New(`^([^ ]+) redeclared as imported package name previous declaration at (.*)$`)
	noPackage   = lazyregexp.New(`^cannot find package "([^"]*)": (.*)$`)
	noBuiltin   = lazyregexp.New(`^builtin package "([^"]*)" undefined$`)
	relative    = lazyregexp.New(`^relative import paths not allowed \("([^"]*)"\)$`)
	notSet      = lazyregexp.New(`^(?:incomplete value|non-concrete value|incomplete [a-z]+:?) (.*?)(?: \(type .*\))?$`)
	wrongType   = lazyregexp.New(`^cannot use (.*) \(type ([a-z]+)\) as (?:type )?(.*?)(?: in .*)?$`)
	operands    = lazyregexp.New(`^invalid operands? (.*) and (.*) to '(.*)' \(type (.*) and (.*)\)$`)
	wrongIndex  = lazyregexp.New(`^invalid index (.*) \(invalid type ([a-z]+)\)$`)
	noText      = lazyregexp.New(`^invalid interpolation$`)
	noName      = lazyregexp.New(`^key value of dynamic field must be concrete, found (?:_|[a-z]+|_\|_\(.*)$`)
	noFunction  = lazyregexp.New(`^cannot call non-function ([^ ]+) \(type .*\)$`)
	noRange     = lazyregexp.New(`^cannot range over ([^ (]+)[^ ]* \((?:found ([a-z]+), want list or struct|incomplete.*)\)$`)
	noElement   = lazyregexp.New(`^index out of range \[([0-9]+)\] with length ([0-9]+)$`)
	unusedLet   = lazyregexp.New(`^unreferenced alias or let clause (.*)$`)
	shadowed    = lazyregexp.New(`^cannot have both alias and field with name "(.*)" in same scope$`)
	ambiguous   = lazyregexp.New(`^(?:unresolved disjunction:?|invalid interpolation: [^ ]+ non-concrete value) (.*?)(?: \(type .*\))?$`)
	partOfUnset = lazyregexp.New(`^.* undefined as (.+) is incomplete(?: \(type .*\))?$`)
	cycle       = lazyregexp.New(`^cycle with field: ([^ (]+)`)
	typeForm    = lazyregexp.New(`^(int|string|bool|bytes|number|float|null|list|struct|\[.*|\{.*|[<>=!].*|.*\|.*)$`)
)

// explanation is how one of CUE's messages is said.
type explanation struct {
	form *lazyregexp.Regexp
	say  func(l *loaded, d *mistake, m []string, others []schema.Position)
}

var explanations = []explanation{
	{unresolved, sayUnresolved},
	{undefined, sayUndefined},
	{twoTypes, sayTypes},
	{twoValues, sayConflict},
	{outOfBound, sayBound},
	{badEmbed, sayEmbedded},
	{badYAML, sayYAML},
	{keyTwice, sayTwice},
	{noBounds, func(l *loaded, d *mistake, m []string, _ []schema.Position) { sayExclusive(l, d, m[1], m[2]) }},
	{badRegexp, func(_ *loaded, d *mistake, m []string, _ []schema.Position) {
		d.Rule, d.Message = schema.RuleInvalidValue, fmt.Sprintf("%q is no regular expression: %s", m[2], m[1])
	}},
	{noEmbedded, func(_ *loaded, d *mistake, m []string, _ []schema.Position) {
		d.Rule, d.Message = schema.RuleImport, fmt.Sprintf("embeds %s, which is not there, or has more than %d MiB", m[1], maxEmbedded>>20)
		d.Hint = "name a file of this directory or below, by its path from here"
	}},
	{farEmbedded, func(_ *loaded, d *mistake, _ []string, _ []schema.Position) {
		d.Rule, d.Message = schema.RuleImport, "embeds a file of a directory above"
		d.Hint = "embed it in a package of that directory, and import the package here"
	}},
	{unused, func(_ *loaded, d *mistake, m []string, _ []schema.Position) {
		target, name, _ := strings.Cut(m[1], " as ")
		if target, err := strconv.Unquote(target); err == nil {
			d.form, d.about, d.alias = unusedImport, target, name
		}
		d.Rule, d.Message, d.Hint = schema.RuleImport, fmt.Sprintf("the import %s is not used", m[1]), "remove the import"
	}},
	{redeclared, func(_ *loaded, d *mistake, m []string, _ []schema.Position) {
		d.Rule, d.Message, d.Hint = schema.RuleImport, fmt.Sprintf("%s is imported twice, first at %s", m[1], m[2]), "remove one, or give it another name: import other \"…\""
	}},
	{noPackage, sayNoPackage},
	{noBuiltin, func(l *loaded, d *mistake, m []string, _ []schema.Position) {
		d.Rule, d.Message = schema.RuleImport, fmt.Sprintf("CUE's standard library has no package %q", m[1])
		if near := valid.Nearest(m[1], standard); near != "" {
			d.Hint = fmt.Sprintf("did you mean %q?", near)
		} else {
			d.Hint = fmt.Sprintf("a package of this repository is imported by its whole path: %q", l.modulePath(m[1]))
		}
	}},
	{relative, func(l *loaded, d *mistake, m []string, _ []schema.Position) {
		d.Rule, d.Message = schema.RuleImport, fmt.Sprintf("the import %q is relative", m[1])
		target := path.Join(l.dir, m[1])
		if strings.HasPrefix(target, "..") || path.Base(m[1]) == SchemaDir {
			target = path.Base(m[1])
		}
		d.Hint = fmt.Sprintf("a package is imported by its whole path: %q", l.modulePath(target))
	}},
	{notSet, func(_ *loaded, d *mistake, m []string, _ []schema.Position) {
		d.Rule, d.Message, d.Expected = schema.RuleNotSet, fmt.Sprintf("is only constrained (%s), not set", m[1]), "a concrete value"
	}},
	{wrongType, func(_ *loaded, d *mistake, m []string, _ []schema.Position) {
		d.operand = true
		d.Rule, d.Message, d.Expected = schema.RuleWrongType, "is "+literally(terms.Clip(m[1]), m[2]), terms.Say(m[3])
		if strings.Contains(m[3], "|bytes") {
			d.Expected = "text or a number, to be put into text"
		}
		if m[2] == "struct" && m[3] == "bool" {
			d.Message, d.Expected, d.Hint = "&& does not join structs", "", "write a single &"
		}
	}},
	{noText, func(_ *loaded, d *mistake, _ []string, _ []schema.Position) {
		d.operand, d.Rule, d.Message = true, schema.RuleWrongType, "a part of this text has no value"
	}},
	{wrongIndex, func(_ *loaded, d *mistake, m []string, _ []schema.Position) {
		d.operand = true
		d.Rule, d.Message, d.Expected = schema.RuleWrongType, fmt.Sprintf("%s is of type %s, and names a field of a struct or an element of a list", terms.Clip(m[1]), terms.Say(m[2])), "text for a field, an integer for an element"
	}},
	{operands, func(l *loaded, d *mistake, m []string, _ []schema.Position) {
		d.operand = true
		if strings.ContainsAny(m[3], "<>") && m[4] != m[5] && (l.writes(d.Position, m[1]) || l.writes(d.Position, m[2])) {
			is, typ, other, want := m[1], m[4], m[2], m[5]
			if l.writes(d.Position, m[2]) {
				is, typ, other, want = m[2], m[5], m[1], m[4]
			}
			d.Rule, d.Message, d.Expected, d.value, d.there = schema.RuleWrongType, "is "+literally(is, typ), terms.Say(want), is, other
			d.Hint = "it is compared with " + terms.Clip(other)
			return
		}
		d.Rule, d.Message = schema.RuleWrongType, fmt.Sprintf("%s cannot be applied to %s and %s", m[3], literally(m[1], m[4]), literally(m[2], m[5]))
		switch {
		case m[4] == "struct":
			d.Hint = "structs are joined with &"
		case m[4] == "string" || m[5] == "string":
			d.Hint = `a value within text is written \(NAME): "v\(x)"`
		}
	}},
	{noName, func(l *loaded, d *mistake, m []string, _ []schema.Position) {
		d.unnamed, d.follows = true, strings.Contains(m[0], "_|_")
		d.Rule, d.Message, d.Hint = schema.RuleNotSet, "a name that is computed here is not set", "set the fields that it is computed from"
		if home := l.where.enclosing(l.labels(d.Field)); !l.where.mine(d.Path) && l.where.mine(home.Path) {
			d.Message, d.Position = fmt.Sprintf("a name that is computed at %s is not set", d.Position), home
		}
	}},
	{noFunction, func(_ *loaded, d *mistake, m []string, _ []schema.Position) {
		d.Rule, d.Message, d.Hint = schema.RuleUndefined, fmt.Sprintf("%s is not a function", m[1]), "see pkg.go.dev/cuelang.org/go/pkg for those of CUE's standard library"
	}},
	{noRange, func(_ *loaded, d *mistake, m []string, _ []schema.Position) {
		d.ranges = lastOf(m[1])
		d.Rule, d.Message, d.Expected = schema.RuleNotSet, fmt.Sprintf("for cannot iterate over %s, which is not set", m[1]), "a list or a struct"
		if m[2] != "" {
			d.Rule, d.Message = schema.RuleWrongType, fmt.Sprintf("for cannot iterate over %s, which is of type %s", m[1], m[2])
		}
	}},
	{noElement, func(_ *loaded, d *mistake, m []string, _ []schema.Position) {
		n, _ := strconv.Atoi(m[2])
		d.Rule, d.Message = schema.RuleUndefined, fmt.Sprintf("there is no element %s: the list has %s", m[1], schema.Count(n, "element"))
		d.Hint = "elements are counted from 0"
	}},
	{unusedLet, func(l *loaded, d *mistake, m []string, _ []schema.Position) {
		name := m[1]
		d.form = unusedName
		d.Rule, d.Message, d.Hint = schema.RuleSyntax, fmt.Sprintf("%s is defined and not used", name), "remove it"
		l.wording(d.Path).UnusedLet(&d.Diagnostic)
	}},
	{shadowed, func(_ *loaded, d *mistake, m []string, _ []schema.Position) {
		d.Rule, d.Message, d.Hint = schema.RuleSyntax, fmt.Sprintf("%s is both a let clause and the field here, which hides it", m[1]), fmt.Sprintf("give the let clause another name, or write the field as %q", m[1])
	}},
	{lazyregexp.New(`^structural cycle`), func(l *loaded, d *mistake, _ []string, _ []schema.Position) {
		d.Rule, d.Message, d.Hint = schema.RuleCycle, "contains itself", "a value cannot be a part of itself"
		if name, _ := l.wordAt(d.Position, ""); identifier.MatchString(name) && !strings.ContainsAny(name[:1], "#_") {
			d.Message, d.Hint = fmt.Sprintf("%s is not text here: it stands for the field %s around it", terms.Clip(name), terms.Clip(name)), fmt.Sprintf("write text in quotes: %q", terms.Clip(name))
		}
	}},
	{partOfUnset, func(_ *loaded, d *mistake, m []string, _ []schema.Position) {
		d.Rule, d.Message = schema.RuleNotSet, fmt.Sprintf("needs a value that is not set: %s", terms.Clip(m[1]))
	}},
	{ambiguous, func(l *loaded, d *mistake, m []string, _ []schema.Position) {
		if f, ok := l.where.index()[d.Position]; ok && lax.Label(f) == m[1] && l.where.mine(d.Path) && terms.Names(f.Value, m[1]) {
			d.form, d.about = selfCycle, m[1]
			d.Rule, d.Message, d.Hint = schema.RuleCycle, fmt.Sprintf("depends on itself: %s is the field here", m[1]), "a field has one value, and cannot be computed from itself"
			return
		}
		d.Rule, d.Message = schema.RuleNotSet, fmt.Sprintf("needs a value that is not set: %s", terms.Clip(m[1]))
	}},
	{cycle, func(_ *loaded, d *mistake, m []string, _ []schema.Position) {
		d.form, d.about = selfCycle, m[1]
		d.Rule, d.Message, d.Hint = schema.RuleCycle, fmt.Sprintf("depends on itself, through %s", m[1]), "a field has one value, and cannot be computed from itself"
	}},
}

// explain says an error in the words of a user.
func explain(l *loaded, d *mistake, others []schema.Position) {
	for m := nested.FindStringSubmatch(d.Message); m != nil; m = nested.FindStringSubmatch(d.Message) {
		d.Message = m[1] + m[2]
	}
	d.Message = qualifier.ReplaceAllString(d.Message, "$1")
	for _, e := range explanations {
		if m := e.form.FindStringSubmatch(d.Message); m != nil {
			e.say(l, d, m, others)
			return
		}
	}
	has := func(s string) bool { return strings.Contains(d.Message, s) }
	switch {
	case has("field not allowed"):
		sayClosed(l, d, others)
	case has("incompatible list lengths"):
		d.Rule = schema.RuleConflict
		d.Message = strings.Replace(d.Message, "incompatible list lengths", "is two lists of different lengths", 1)
		d.Hint = "a list has one value: keep one of them"
		f := cmp.Or(l.where.written(l.labels(d.Field)), l.where.embedded(l.labels(d.Field)))
		if l.sayLength(d, f, others) {
			return
		}
		if f != nil && !l.where.mine(d.Path) && l.where.mine(position(f.Value.Pos()).Path) {
			d.Hint = fmt.Sprintf("a list has one value: keep this one, or the one at %s", d.Position)
			d.Position = edge(f, false)
		}
	case has("import cycle"):
		d.Rule, d.Message, d.Hint = schema.RuleImport, "packages import each other in a cycle", "move what both need to a third package"
	case has("Addition of lists"):
		d.Rule, d.Message, d.Hint = schema.RuleWrongType, "+ does not concatenate lists", `import "list" and write list.Concat([a, b])`
	case has("integer fields not supported"):
		d.Rule, d.Message, d.Hint = schema.RuleInvalidName, "a field name cannot be a number", `write a computed name as text: "\(i)"`
	case has("preference mark not allowed"):
		d.Rule, d.Message, d.Hint = schema.RuleSyntax, "* is only allowed before one of several values", "write *3 | int for a default, or the value alone"
	case has("number cannot be represented as int"):
		d.Rule, d.Message, d.Hint = schema.RuleOutOfRange, "is not a whole number of bytes", "use a smaller unit: 300Mi instead of 0.3Gi"
	case !l.built && syntax.IsError(d.Message):
		d.Rule = schema.RuleSyntax
		l.wording(d.Path).Explain(&d.Diagnostic)
	}
}

// literally describes a value by the text and the type that CUE gives.
func literally(text, typ string) string {
	switch typ {
	case "string":
		return "the string " + text
	case "int", "number", "float":
		return "the number " + text
	case "bool":
		return "the boolean " + text
	case "list", "struct":
		return "a " + typ
	}
	return text
}

// modulePath returns the import path of a directory of the repository.
func (l *loaded) modulePath(dir string) string {
	module, _, _ := strings.Cut(l.inst.Module, "@")
	return path.Join(module, dir)
}

// foreignWords are what other languages call what CUE calls otherwise.
var foreignWords = map[string]string{
	"True": "true", "False": "false", "TRUE": "true", "FALSE": "false", "None": "null", "nil": "null", "NULL": "null", "Null": "null",
	"undefined": "null",
}

// functions are builtin functions of other languages, and where CUE has them.
var functions = map[string]string{
	"max": "list.Max", "min": "list.Min", "range": "list.Range", "sum": "list.Sum", "concat": "list.Concat", "join": "strings.Join",
	"split": "strings.Split", "lower": "strings.ToLower", "upper": "strings.ToUpper", "format": "text/template.Execute", "contains": "list.Contains",
	"sort": "list.SortStrings", "replace": "strings.Replace", "jsonencode": "json.Marshal", "yamlencode": "yaml.Marshal",
}

func sayUnresolved(l *loaded, d *mistake, m []string, _ []schema.Position) {
	name := m[1]
	d.form, d.about = undefinedName, name
	d.Rule, d.Message = schema.RuleUndefined, fmt.Sprintf("%s is not defined", name)
	text, called := l.wordAt(d.Position, name)
	_, ours := lax.Definitions()[name]
	near := valid.Nearest(name, slices.DeleteFunc(l.names(false), func(n string) bool { return n == name || n[0] != name[0] && strings.ContainsAny(n[:1]+name[:1], "_#$") }))
	switch {
	case name == SchemaDir:
		d.Hint = fmt.Sprintf("add: import %q", l.modulePath(SchemaDir))
	case ours:
		d.Hint = fmt.Sprintf("write %s.%s, with import %q", SchemaDir, name, l.modulePath(SchemaDir))
	case foreignWords[name] != "":
		d.Hint = "CUE writes " + foreignWords[name]
	case called && functions[name] != "":
		pkg, _, _ := strings.Cut(functions[name], ".")
		d.Hint = fmt.Sprintf("import %q and write %s", pkg, functions[name])
	case slices.Contains(standard, name) && strings.HasPrefix(text, name+"."):
		d.Hint = fmt.Sprintf("add: import %q", name)
	case strings.HasPrefix(text, name+".") && importable(l, name) != "":
		d.Hint = "add: import " + importable(l, name)
	case l.inExpression(d.Position) && isField(name), isOperand(l, d.Position) && slices.Contains(l.names(true), name):
		d.Hint = fmt.Sprintf("to use a field that is set elsewhere, declare it in the definition: %s: _", name)
	case near != "" && len(name) > 2:
		d.Hint = fmt.Sprintf("did you mean %s?", near)
	case strings.HasPrefix(name, "$"):
		d.word, d.Hint = len(text), fmt.Sprintf("environment variables are not available here; write text in quotes: %q", text)
	case strings.ContainsAny(name, "#_"):
		d.Hint = fmt.Sprintf("define it: %s: …", name)
	case l.begins(schema.Position{Path: d.Path, Line: d.Line, Column: d.Column - 2}, `\(`):
		d.Hint = fmt.Sprintf(`define %s, or write it as text, without \( )`, name)
	case syntax.IsPlainWord(text):
		d.word, d.Hint = len(text), fmt.Sprintf("write text in quotes: %q", text)
	}
}

// inExpression reports whether what is at a position is only a part of a value.
func (l *loaded) inExpression(pos schema.Position) bool {
	f, ok := l.where.index()[pos]
	if !ok {
		return true
	}
	_, alone := f.Value.(*ast.Ident)
	return !alone
}

func sayUndefined(l *loaded, d *mistake, m []string, _ []schema.Position) {
	name := strings.Trim(m[1], `"`)
	d.Rule, d.Message, d.lacks = schema.RuleUndefined, fmt.Sprintf("there is no %s here", name), name
	sayNoName(l, d, name)
	if l.where.mine(d.Path) {
		rowWithout(l, d, name)
		return
	}
	if l.begins(d.Position, name) {
		return
	}
	// A library looks it up, and the package gives it.
	if at := l.where.text(func(text string) bool { return text == name }); at.Path != "" {
		d.Rule, d.Message = schema.RuleInvalidValue, fmt.Sprintf("there is no %s where it is looked up, at %s", name, d.Position)
		d.Position = at
	}
}

// sayNoName says which names there are instead of one that is not there.
func sayNoName(l *loaded, d *mistake, name string) {
	if strings.HasPrefix(name, "#") {
		d.form, d.about = absentDefinition, name
	}
	if top := l.topOf(d.Position); len(top) > 0 { // of that package nothing else can be meant
		if near := valid.Nearest(name, top); near != "" {
			d.Hint = fmt.Sprintf("did you mean %s?", near)
			return
		}
		if strings.HasPrefix(name, "#") {
			d.Expected = "one of " + strings.Join(top, ", ")
			return
		}
	}
	if beside := l.selectable(d.Position); len(beside) > 0 {
		if near := valid.Nearest(name, beside); near != "" {
			d.is, d.meant = name, near
			d.Hint = fmt.Sprintf("did you mean %s?", near)
		} else {
			d.Expected = "one of " + strings.Join(beside, ", ")
		}
		return
	}
	_, ours := lax.Definitions()["#"+name]
	isKnown := func(n string) bool { return strings.HasPrefix(n, "#") }
	if known := valid.Nearest(name, slices.DeleteFunc(slices.Sorted(maps.Keys(lax.Definitions())), func(n string) bool { return !isKnown(n) })); known != "" && isKnown(name) {
		d.Hint = fmt.Sprintf("did you mean %s?", known)
		return
	}
	switch ours = ours && !strings.HasPrefix(name, "#"); {
	case ours:
		d.Hint = fmt.Sprintf("did you mean #%s?", name)
	case strings.HasPrefix(name, "_"):
		d.Hint = "names that begin with _ are not visible in other packages; a definition begins with #"
	default:
		near := valid.Nearest(name, l.names(true))
		if near == "" && strings.HasPrefix(name, "#") {
			known := slices.DeleteFunc(slices.Sorted(maps.Keys(lax.Definitions())), func(n string) bool { return !isKind(n) })
			d.Expected = "one of " + strings.Join(known, ", ") + ", or a definition of your own"
			break
		}
		if near != "" && near != name && len(name) > 2 {
			d.is, d.meant = name, near
			d.Hint = fmt.Sprintf("did you mean %s?", near)
		}
	}
}

// sayConflict names both places of two values.
func sayConflict(l *loaded, d *mistake, m []string, others []schema.Position) {
	if l.sayAlternatives(d, m, others) || l.sayAmong(d) {
		return
	}
	a, b := m[1], m[2]
	if l.writes(d.Position, b) || len(others) > 0 && l.writes(others[0], a) || l.begins(d.Position, b) && !l.begins(d.Position, a) {
		a, b = b, a
	}
	if len(others) > 0 { // with their units
		if l.writes(d.Position, a) {
			a = l.textAt(d.Position)
		}
		if l.writes(others[0], b) {
			b = l.textAt(others[0])
		}
	}
	d.Rule, d.Message = schema.RuleConflict, fmt.Sprintf("is both %s and %s", a, b)
	if len(others) == 0 {
		sayListed(l, d, a, b)
		return
	}
	other := others[0]
	if dir := path.Dir(other.Path); dir != l.dir && below(l.dir, dir) {
		d.Rule, d.Message = schema.RuleInherited, fmt.Sprintf("changes an object of a parent directory, declared at %s: %s", other, d.Message)
		d.Hint = "an object belongs to one directory: change it there, or give this package another name"
		return
	}
	d.here, d.there = a, b
	d.Rule, d.Message = schema.RuleConflict, fmt.Sprintf("is %s here and %s at %s", a, b, other)
	d.Hint = "a field has one value: keep one of them"
	switch {
	case path.Dir(other.Path) == path.Dir(d.Path):
	case strings.HasSuffix(d.Field, "]"):
		d.Hint = "a list is one value: keep one of the lists, or make the other a default that may be changed: *[…] | [...]"
	case l.textAt(other) != b && !l.begins(other, b): // a default in its place would be one for all that use it
		d.Hint = "keep one of them: the other is made from other values there"
	default:
		d.Hint = fmt.Sprintf("keep one of them, or make the other a default that may be changed: *%s | %s", b, typeOf(b))
	}
}

// sayTypes is of two values that cannot be one since they are of different
// types; one is often the type itself.
func sayTypes(l *loaded, d *mistake, m []string, others []schema.Position) {
	a, b := m[1], m[2]
	if l.sayAlternatives(d, m, others) || l.sayShape(d, a, b, others) {
		return
	}
	isType := func(s string) bool { return s != "null" && typeForm.MatchString(s) }
	if isType(a) && !isType(b) {
		a, b = b, a
	}
	if !isType(b) || isType(a) {
		sayConflict(l, d, []string{"", a, b}, others)
		return
	}
	d.Rule, d.Message, d.Expected = schema.RuleWrongType, "is "+literally(terms.Clip(a), typeOf(a)), terms.Say(b)
	d.value, d.takes = a, b
	if typeOf(a) == "int" {
		d.Message = "is the number " + a
	}
	if strings.HasPrefix(b, "{") {
		d.Expected = "a struct"
	}
	if f := l.literalBehind(d, cue.NumberKind|cue.StringKind|cue.BoolKind|cue.ListKind); f != nil {
		d.Position = edge(f, false)
		return
	}
	if len(others) > 0 {
		d.Hint = "the type is declared at " + others[0].String()
	}
}

// sayBound is of a value outside of a bound that the repository's own CUE sets.
func sayBound(l *loaded, d *mistake, m []string, others []schema.Position) {
	if m = slices.Clone(m); l.writes(d.Position, m[1]) {
		m[1] = l.textAt(d.Position)
	}
	if len(others) > 0 {
		m[2] = cmp.Or(terms.BoundAt(l.where.fileOf(others[0]), others[0].Line, others[0].Column, m[2]), m[2])
	}
	d.Rule, d.Message, d.Expected = schema.RuleOutOfRange, fmt.Sprintf("%s is out of bounds", terms.Clip(m[1])), terms.Say(m[2])
	d.value, d.takes = m[1], m[2]
	l.toWritten(d)
	toSet(l, d, m[1])
	if at := l.where.literal(m[1]); (strings.HasPrefix(lastOf(d.Field), "#") || isAside(l, d.Field)) && !l.where.mine(d.Path) && l.where.mine(at.Path) {
		d.Position = at // of the argument of a template that is written as a function
	}
	if said := l.size(d, m[1], m[2]); said != "" {
		d.Message = said
	}
	if words := durationWords(m[3]); words != "" {
		d.Message = terms.Clip(m[1]) + " " + words
	} else if m[3] != "" && (d.Expected == terms.Clip(m[2]) || !strings.Contains(m[2], "(")) { // there are no better words
		d.Message = fmt.Sprintf("%s is not valid: %s", terms.Clip(m[1]), terms.Clip(m[3]))
	}
	if len(others) > 0 {
		d.Hint = "the bound is set at " + others[0].String()
	}
	if m[2] == "matchN" || m[2] == "matchIf" {
		l.sayMatched(d, m[1], others)
	}
}

func sayNoPackage(l *loaded, d *mistake, m []string, _ []schema.Position) {
	module, _, _ := strings.Cut(l.inst.Module, "@")
	target := m[1]
	if target != module && !strings.HasPrefix(target, module+"/") {
		d.Rule, d.Message = schema.RuleImport, fmt.Sprintf("%q is not a package of this repository, whose module is %q", target, module)
		d.Hint = "only packages of this repository and of CUE's standard library can be imported"
		if base, _, _ := strings.Cut(path.Base(target), "@"); base == SchemaDir {
			d.Hint = fmt.Sprintf("the definitions are imported as %q", l.modulePath(SchemaDir))
		} else if inPkg(d.Path) {
			d.Message, d.Hint = fmt.Sprintf("%q is not vendored in this repository", target), "vendor the module that has it: muster vendor URL@VERSION"
		}
		return
	}
	d.Rule, d.Message = schema.RuleImport, fmt.Sprintf("there is no package %q", target)
	switch base, version, _ := strings.Cut(target, "@"); {
	case strings.Contains(m[2], "no files in package directory"):
		d.Message = fmt.Sprintf("the package in the directory of %q has another name", target)
		d.Hint = fmt.Sprintf("write: import %q", target+":NAME")
	case version != "":
		d.Hint = fmt.Sprintf("write it without the version: %q", base)
	case strings.HasSuffix(target, ".cue"):
		d.Hint = fmt.Sprintf("a directory is imported, not a file: %q", path.Dir(target))
	case target == l.modulePath(SchemaDir):
		d.Hint = "the definitions are missing: muster init writes them to a new repository, from which they can be copied"
	default:
		d.Expected = "a directory of this repository with CUE files"
	}
}

// sayClosed is of a field that a definition of the repository's own does not
// have.
func sayClosed(l *loaded, d *mistake, others []schema.Position) {
	sayNotAllowed(l, d, l.libraries.allowed(l, d), others)
}

// sayNotAllowed is sayClosed where it is known what is allowed there.
func sayNotAllowed(l *loaded, d *mistake, allowed trace.Allowed, others []schema.Position) {
	name := d.Field[strings.LastIndexByte(d.Field, '.')+1:]
	d.form, d.Rule = closedField, schema.RuleUnknownField
	d.Message = fmt.Sprintf("field %q is not in the definition", strings.Trim(name, `"`))
	d.Hint = "remove it, or add it to the definition"
	if len(allowed.Fields) > 0 {
		d.Expected = "one of " + strings.Join(allowed.Fields, ", ")
	}
	if only, near := branched(allowed, strings.Trim(name, `"`)); only != "" {
		d.Hint = fmt.Sprintf("remove it: the definition has it only if %s", only)
	} else if near != "" {
		d.about = near
		d.Hint = fmt.Sprintf("did you mean %s?", near)
	} else if len(allowed.Patterns) == 1 {
		d.Rule, d.Message = schema.RuleInvalidName, "invalid name "+strconv.Quote(strings.Trim(name, `"`))
		text := fmt.Sprint(allowed.Patterns[0])
		d.Expected, d.Hint = strings.TrimPrefix(d.Expected+", or "+terms.Say(text), ", or "), ""
		pattern, _ := parser.ParseExpr("", text)
		if a, ok := terms.Of(pattern); ok {
			if len(a.Words) > 0 {
				d.Expected = a.Want // the fields that there are have some of these names
			}
			if near := valid.Nearest(strings.Trim(name, `"`), a.Words); near != "" {
				d.Hint = fmt.Sprintf("did you mean %s?", near)
			}
		}
	} else if near := valid.Nearest(name, slices.DeleteFunc(l.names(true), func(n string) bool { return n == name })); near != "" && len(name) > 2 && len(allowed.Fields) == 0 {
		d.Hint = fmt.Sprintf("did you mean %s?", near)
	} else if i := slices.IndexFunc(others, func(o schema.Position) bool { return o.Line != d.Line || o.Path != d.Path }); i >= 0 {
		d.Hint = fmt.Sprintf("remove it, or add it to the definition at %s", others[i])
	}
	if f, ok := l.where.index()[d.Position]; ok {
		d.Position = edge(f, true)
	}
}

// labels returns the labels of a data path of a package, and the indexes of lists in it.
func (l *loaded) labels(field string) []string {
	return labelsOf(cue.MakePath(selectors(l, field)...))
}

// selectors returns a data path of a package as CUE has it, nil if it is none.
func selectors(l *loaded, field string) (out []cue.Selector) {
	if strings.HasPrefix(field, "_") { // which a path has only with its package
		end := strings.IndexAny(field+".", ".[")
		out, field = append(out, cue.Hid(field[:end], l.inst.ID())), "_"+field[end:]
	}
	path := cue.ParsePath(strings.Replace(field, "_", "x", len(out)))
	if path.Err() != nil {
		return nil
	}
	return append(out, path.Selectors()[len(out):]...)
}
