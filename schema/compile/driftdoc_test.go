package compile_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"

	"github.com/musterhq/muster/schema"
	schemacue "github.com/musterhq/muster/schema/cue"
	"github.com/musterhq/muster/schema/sealed"
	"github.com/musterhq/muster/schema/valid"
)

// takes reports whether a value of the definitions accepts an expression.
func takes(v cue.Value, expr string) bool {
	return v.Unify(cuecontext.New().CompileString(expr)).Validate(cue.Concrete(true)) == nil
}

// driftWide looks for what the definitions have and the rules have not: a default
// of CUE's own, an open struct, a word, a pattern that refuses more, and bounds
// of what is in a map.
func driftWide(t *testing.T, at string, v cue.Value, r *valid.Rule, typ reflect.Type) {
	t.Helper()
	if _, has := v.Default(); has && r.Type != valid.Struct && r.Type != valid.Map && r.Type != valid.List {
		t.Errorf("%s has a default in CUE: docs/decisions/0013 says why it has none", at)
	}
	switch r.Type {
	case valid.Struct:
		if takes(v, `{nonsense: 1}`) || v.Unify(cuecontext.New().CompileString(`{nonsense: 1}`)).Validate() == nil {
			t.Errorf("%s takes any field", at)
		}
	case valid.Enum, valid.Priority, valid.Bool:
		for _, w := range wordsOf(v) {
			if !slices.Contains(r.Words, w) {
				t.Errorf("%s has the word %q in CUE, not in the rules", at, w)
			}
		}
	case valid.String:
		driftLength(t, at, v, r)
		rng := rand.New(rand.NewPCG(1, 2))
		const letters = `aaabzAZ09-_./ $()!é日"\'`
		for range 300 {
			var b strings.Builder
			for range rng.IntN(8) {
				b.WriteRune([]rune(letters)[rng.IntN(len([]rune(letters)))])
			}
			s := b.String()
			if (r.Match == nil || r.Match(s) == "") && int64(len(s)) >= r.Min && !takes(v, strconv.Quote(s)) {
				t.Errorf("%s: the rules take %q, CUE does not", at, s)
			}
		}
		if longest := strings.Repeat("a", int(r.Max)); (r.Match == nil || r.Match(longest) == "") && !takes(v, strconv.Quote(longest)) {
			t.Errorf("%s: the rules take %d bytes, CUE does not", at, r.Max)
		}
	case valid.List:
		most := "[" + strings.Repeat(sample(r.Elem, "e")+",", int(r.Max)) + "]"
		if !r.Unique && !takes(v, most) {
			t.Errorf("%s: the rules take %d elements, CUE does not", at, r.Max)
		}
		var each strings.Builder
		for i := range r.Max {
			each.WriteString(sample(r.Elem, fmt.Sprint("e", i)) + ",")
		}
		if len(r.Elem.Words) == 0 && !takes(v, "["+each.String()+"]") {
			t.Errorf("%s: the rules take %d elements, CUE does not", at, r.Max)
		}
	case valid.Map:
		var most strings.Builder
		for i := range r.Max {
			fmt.Fprintf(&most, "%q: %s, ", sampleKey(r, fmt.Sprint("k", i)), sample(r.Elem, "x"))
		}
		if !takes(v, "{"+most.String()+"}") {
			t.Errorf("%s: the rules take %d entries, CUE does not", at, r.Max)
		}
		for n := range 200 {
			if k := strings.Repeat("A", n); takes(v, fmt.Sprintf("{%q: %s}", k, sample(r.Elem, "x"))) != (r.Key(k) == "") {
				t.Errorf("%s: the rules take a key of %d bytes: %v, CUE does not agree", at, n, r.Key(k) == "")
				break
			}
		}
		k := strconv.Quote(sampleKey(r, "k"))
		elem := v.Unify(cuecontext.New().CompileString("{" + k + ": _}")).LookupPath(cue.ParsePath(k))
		driftValue(t, at+"{}", elem, r.Elem, typ.Elem())
	}
}

// sampleKey returns a key that a map takes: k, or a host of that name.
func sampleKey(r *valid.Rule, k string) string {
	if r.Key(k) != "" {
		k += ".example"
	}
	return k
}

// wordsOf returns the strings that a disjunction names.
func wordsOf(v cue.Value) (words []string) {
	op, parts := v.Expr()
	if op != cue.OrOp {
		if s, err := v.String(); err == nil {
			return []string{s}
		}
		return nil
	}
	for _, p := range parts {
		words = append(words, wordsOf(p)...)
	}
	return words
}

var rangeForm = regexp.MustCompile(`(-?[0-9][0-9A-Za-z^]*) to ([0-9][0-9A-Za-z^]*)`)

// driftComment holds the comment of a field to what an editor should show: bounds
// (those that CUE does not enforce are said nowhere else), words, unit, and an
// example that is valid.
func driftComment(t *testing.T, at string, v cue.Value, r *valid.Rule, doc string) {
	t.Helper()
	number := func(n int64) bool { return regexp.MustCompile(`\b` + strconv.FormatInt(n, 10) + `\b`).MatchString(doc) }
	switch r.Type {
	case valid.Int, valid.Priority:
		found := false
		for _, m := range rangeForm.FindAllStringSubmatch(doc, -1) {
			found = found || amountOf(t, m[1]) == r.Min && amountOf(t, m[2]) == r.Max
		}
		if !found {
			t.Errorf("%s: the comment has no range %d to %d: %s", at, r.Min, r.Max, doc)
		}
		unit := map[valid.Unit]string{valid.Seconds: "in seconds", valid.Bytes: "in bytes", valid.Milli: "thousandths of a core"}[r.Unit]
		if !strings.Contains(doc, unit) {
			t.Errorf("%s: the comment does not say %q: %s", at, unit, doc)
		}
	case valid.List, valid.Map:
		if !number(r.Max) {
			t.Errorf("%s: the comment does not say that there are at most %d: %s", at, r.Max, doc)
		}
		if once := regexp.MustCompile(`(?i)\beach once\b`).MatchString(doc); once != r.Unique {
			t.Errorf("%s: each once in the comment %v, in the rules %v: %s", at, once, r.Unique, doc)
		}
		if e := r.Elem; e.Type == valid.String && e.Max > schema.MaxNameLen && !number(e.Max) {
			t.Errorf("%s: the comment does not say that each has at most %d bytes: %s", at, e.Max, doc)
		}
	case valid.String:
		if takes(v, strconv.Quote("/"+strings.Repeat("a", int(r.Max)))) && !number(r.Max) {
			t.Errorf("%s: the comment does not say that it has at most %d bytes: %s", at, r.Max, doc)
		}
	}
	for _, w := range r.Words {
		if !strings.Contains(doc, strconv.Quote(w)) {
			t.Errorf("%s: the comment does not name %q: %s", at, w, doc)
		}
	}
	if r.Type == valid.Struct {
		return
	}
	_, example, _ := strings.Cut(doc, "Example: ")
	words := strings.Fields(example)
	for n := len(words); n > 0; n-- {
		if takes(v, strings.TrimRight(strings.Join(words[:n], " "), ".,")) {
			return
		}
	}
	t.Errorf("%s: the comment has no example that is valid: %s", at, doc)
}

// unbounded lists the texts whose length only the rules bound: CUE would need a
// pattern that is slow, and an edited copy could not be trusted anyway.
var unbounded = []string{
	"#AllocSet.annotations{}", "#Job.annotations{}", "#Job.policy.from[].selector", "#Job.task.env{}", "#Job.task.files{}.content", "#Job.task.health.exec.command[]", "#Job.task.health.http.headers{}", "#Job.task.health.http.path", "#Job.task.process.command[]", "#Job.task.stop.command[]", "#Job.task.before[].process.command[]", "#Job.task.before[].process.root", "#Job.task.before[].container.args[]", "#Job.task.before[].container.command[]", "#Job.task.before[].container.workdir", "#Job.task.container.args[]", "#Job.task.container.command[]", "#Job.task.container.workdir",
	"#Job.task.packages[].path", "#Job.task.process.root", "#Job.task.volumes{}.path", "#Machine.match", "#Job.affinity[].selector", "#Job.antiAffinity[].selector", "#AllocSet.affinity[].selector", "#AllocSet.antiAffinity[].selector", "#Secret.age", "#Secret.sops", "#Service.selector", "#Service.weights[].selector", "#Tenant.paths[]",
}

// driftLength holds the list above to what CUE takes.
func driftLength(t *testing.T, at string, v cue.Value, r *valid.Rule) {
	t.Helper()
	long := strings.Repeat("a", int(r.Max)+1)
	open := takes(v, strconv.Quote(long)) || takes(v, strconv.Quote("/"+long))
	if open != slices.Contains(unbounded, at) {
		t.Errorf("%s: CUE takes texts longer than %d bytes: %v, and the list of such fields says otherwise", at, r.Max, open)
	}
}

// amountOf evaluates a number as a comment writes it.
func amountOf(t *testing.T, s string) int64 {
	t.Helper()
	if _, zeros, ok := strings.Cut(s, "10^"); ok {
		n, err := strconv.Atoi(zeros)
		if err != nil {
			t.Fatal(err)
		}
		s = "1" + strings.Repeat("0", n)
	}
	n, err := cuecontext.New().CompileString(s).Int64()
	if err != nil {
		return -1
	}
	return n
}

// TestDriftExamples: the example in the comment of each kind's definition is
// valid, in CUE and by the rules, and each definition is used.
func TestDriftExamples(t *testing.T) {
	t.Parallel()
	defs := definitions(t)
	for _, kind := range schema.Kinds() {
		text, example, found := strings.Cut(comment(defs.LookupPath(cue.ParsePath(defName(kind))), defName(kind)), "Example:")
		if !found || len(text) < 40 {
			t.Errorf("%s has no example, or says nothing", defName(kind))
			continue
		}
		v := withDefinitions(t, example)
		if err := v.Validate(cue.Concrete(true)); err != nil {
			t.Errorf("%s: %v", defName(kind), err)
			continue
		}
		it, err := v.LookupPath(cue.ParsePath(string(kind))).Fields()
		if err != nil {
			t.Fatal(err)
		}
		for it.Next() {
			b, err := it.Value().MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			data, err := valid.Parse(b)
			if err != nil {
				t.Fatal(err)
			}
			if _, problems := valid.Object(kind, it.Selector().Unquoted(), data); len(problems) > 0 {
				t.Errorf("%s: %v", defName(kind), problems)
			}
		}
	}
	var all strings.Builder
	for _, b := range schemacue.Files() {
		all.Write(b)
	}
	code := regexp.MustCompile(`(?m)//.*$`).ReplaceAllString(all.String(), "")
	uses := map[string]int{}
	for _, name := range regexp.MustCompile(`#[A-Za-z]+`).FindAllString(code, -1) {
		uses[name]++
	}
	for _, name := range slices.Sorted(maps.Keys(uses)) {
		if uses[name] < 2 && valid.Of(schema.Kind(strings.ToLower(name[1:]))) == nil {
			t.Errorf("nothing uses the definition %s", name)
		}
	}
}

// sample is a value that r takes, a text where that will do.
func sample(r *valid.Rule, text string) string {
	switch r.Type {
	case valid.Int:
		return fmt.Sprint(r.Min)
	case valid.Free:
		return fmt.Sprintf("{type: %q}", text)
	case valid.Struct:
		var b strings.Builder
		for _, f := range r.Fields {
			if f.Required {
				fmt.Fprintf(&b, "%s: %s, ", f.Name, sample(f.Rule, text))
			}
		}
		return "{" + b.String() + "}"
	case valid.List:
		return "[" + sample(r.Elem, text) + "]"
	}
	if r.Match != nil && r.Match(text) != "" {
		for _, s := range []string{"/" + text, text + ".example", "https://" + text + "/x", "fd00::" + text + "/128", "sha256:" + strings.Repeat("0", 64)} {
			if r.Match(s) == "" {
				text = s
				break
			}
		}
		if _, key, err := sealed.NewIdentity(); err == nil && r.Match(key.String()) == "" {
			return strconv.Quote(key.String())
		}
	}
	return strconv.Quote(text)
}
