package compile

import (
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/schema"
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
// says of it what is wrong), a label that it is in, and what CUE says of an expression that has it. made is of madeText.
func (in inputs) make(m mistake, made string) bool {
	elsewhere := func(o mistake) bool { return o.Field != m.Field }
	apart := func(o mistake) bool { return o.Position != m.Position }
	if made != "" {
		for given, of := range in.texts {
			if made != given && slices.ContainsFunc(of, elsewhere) && (hasWord(made, given) || m.value == "" && strings.Contains(made, given)) {
				return true
			}
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
