package compile

import (
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/errors"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/trace"
)

// inputs are mistakes by what may be made of the values that are wrong: of thousands in one package, each is
// compared with few.
type inputs struct {
	texts  map[string][]mistake // by the text that is wrong
	labels map[string][]mistake // of invalid names, by the name
	paths  map[string][]mistake // by their data path as CUE writes it
}

func inputsOf(found []mistake) inputs {
	in := inputs{map[string][]mistake{}, map[string][]mistake{}, map[string][]mistake{}}
	indices := strings.NewReplacer("[", ".", "]", "")
	for _, m := range found {
		if given, err := strconv.Unquote(m.value); err == nil && len(given) > 1 {
			in.texts[given] = append(in.texts[given], m)
		}
		if m.Rule == schema.RuleInvalidName {
			in.labels[lastOf(m.Field)] = append(in.labels[lastOf(m.Field)], m)
		}
		if at := indices.Replace(m.Field); strings.Contains(at, ".") {
			in.paths[at] = append(in.paths[at], m)
		}
	}
	return in
}

// make reports whether a mistake follows from the value of one of them: a text that it is a part of (a word of, if CUE
// says of it what is wrong) and that it is computed from, a label that it is in, and what CUE says of an expression that has it.
// made is of madeText.
func (in inputs) make(m mistake, made string, sources func() func(mistake) bool) bool {
	elsewhere := func(o mistake) bool { return o.Field != m.Field }
	apart := func(o mistake) bool { return o.Position != m.Position }
	if made != "" {
		var parts []mistake
		for given, of := range in.texts {
			if made != given && (hasWord(made, given) || m.value == "" && strings.Contains(made, given)) {
				parts = append(parts, of...)
			}
		}
		if parts = slices.DeleteFunc(parts, func(o mistake) bool { return !elsewhere(o) }); len(parts) > 0 && slices.ContainsFunc(parts, sources()) {
			return true
		}
		if m.Rule != schema.RuleInvalidName && slices.ContainsFunc(in.labels[made], apart) {
			return true
		}
	}
	for word := range strings.FieldsSeq(m.Message) {
		if path, ok := strings.CutSuffix(word, ":"); ok && slices.ContainsFunc(in.paths[path], func(o mistake) bool { return elsewhere(o) && apart(o) }) {
			return true
		}
	}
	return false
}

// sourcesOf returns a function that reports whether a value is computed from the one that a mistake is of; pathOf
// writes a path as mistakes have it.
func sourcesOf(v cue.Value, pathOf func(cue.Path) string) func(o mistake) bool {
	places, paths := map[schema.Position]bool{}, map[string]bool{}
	for _, leaf := range trace.Leaves(v) {
		for _, o := range trace.Origins(leaf) {
			places[valueAt(o.Value)], paths[pathOf(o.Path)] = true, true
			for _, at := range errors.Positions(o.Value.Err()) { // CUE keeps only the bound of a text that is out of it
				places[position(at)] = true
			}
		}
	}
	return func(o mistake) bool { return places[o.Position] || o.Field != "" && paths[o.Field] }
}
