package valid

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/lazyregexp"
)

// didYouMean returns a hint that names what word was probably meant to be, or
// "". What users of other systems write comes first, then the nearest of words.
func didYouMean(word string, words []string, alias map[string]string) string {
	if to, ok := alias[word]; ok {
		if strings.Contains(to, " ") {
			return "write " + to
		}
		return fmt.Sprintf("did you mean %s?", to)
	}
	if best := Nearest(word, words); best != "" {
		return fmt.Sprintf("did you mean %s?%s", best, foreign(word))
	}
	return ""
}

// belongs says where in an object a field is that stands in a wrong place; "" if
// the object has none of that name, or several.
func belongs(object *Rule, name string) string {
	found := placesOf(object, name, nil)
	if len(found) != 1 || len(found[0]) < 2 {
		return ""
	}
	at := found[0]
	return fmt.Sprintf("%s is a field of %s: write %s", name, strings.Join(at[:len(at)-1], "."), strings.Join(at, ": "))
}

// placesOf returns the paths of the fields of a struct, and of those in it, that
// have a name.
func placesOf(r *Rule, name string, path []string) (found [][]string) {
	if r == nil {
		return nil
	}
	for _, f := range r.Fields {
		at := append(slices.Clone(path), f.Name)
		if f.Name == name {
			found = append(found, at)
		}
		if f.Rule != nil && f.Rule.Type == Struct {
			found = append(found, placesOf(f.Rule, name, at)...)
		}
	}
	return found
}

// foreign names the first character of word that only looks as if it belonged
// there: a letter of another alphabet is not to be seen.
func foreign(word string) string {
	for _, r := range word {
		if r > unicode.MaxASCII && unicode.IsLetter(r) {
			return fmt.Sprintf(" %q is not a Latin letter (%U)", string(r), r)
		}
	}
	return ""
}

// maxWord is longer than any field name, in bytes.
const maxWord = 64

// Nearest returns the one of words that word is probably a misspelling of, ""
// if there is none.
func Nearest(word string, words []string) string {
	if len(word) > maxWord {
		return ""
	}
	best, distance := "", (len(word)+3)/4
	for _, w := range words {
		if d := editDistance(strings.ToLower(word), strings.ToLower(w)); d <= distance && (best == "" || d < distance) {
			best, distance = w, d
		}
	}
	return best
}

// editDistance counts the insertions, deletions, replacements and swaps of
// neighbours that turn a into b (optimal string alignment), over bytes. Words
// longer than a field name ever is are far from everything.
func editDistance(a, b string) int {
	if len(a) > maxWord || len(b) > maxWord {
		return maxWord
	}
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// foreignInsert is how a value is put into text in a shell, and in templates of text.
var foreignInsert = lazyregexp.New(`\$\(([A-Za-z_.]+)\)|\$\{([A-Za-z_.]+)\}|\{\{ *\.?([A-Za-z_.]+) *\}\}`)

var notName = lazyregexp.New(`[^a-z0-9]+`)

// nameHint returns the valid name nearest to s, if there is one.
func nameHint(s string) string {
	if len(s) > 2*schema.MaxNameLen || strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII }) {
		return ""
	}
	if meant := foreignInsert.ReplaceAllString(s, `\($1$2$3)`); meant != s {
		return `a value within text is written \(NAME): "` + meant + `"`
	}
	name := strings.Trim(notName.ReplaceAllString(strings.ToLower(s), "-"), "-")
	if name == s || schema.CheckName(name) != nil {
		return ""
	}
	return fmt.Sprintf("did you mean %q?", name)
}

// wordHint returns the one of a rule's words that s probably stands for. An alias with a space is
// the hint itself.
func wordHint(s string, r *Rule) string {
	best := r.Alias[strings.ToLower(s)]
	if strings.Contains(best, " ") {
		return best
	}
	if !slices.Contains(r.Words, best) {
		best = Nearest(s, r.Words)
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("did you mean %q?", best)
}

// keyHint returns the valid key nearest to k.
func keyHint(r *Rule, k string) string {
	for _, to := range []string{"_", "-"} {
		near := strings.Trim(notKey.ReplaceAllString(k, to), "_-")
		if near != k && strings.ContainsFunc(near, unicode.IsLetter) && len(near)*2 > len(k) && r.Key(near) == "" {
			return fmt.Sprintf("did you mean %q?", near)
		}
	}
	return ""
}

var notKey = lazyregexp.New(`[^A-Za-z0-9]+`)

// pathHint returns the directory that s probably means.
func pathHint(s string) string {
	if before, _, glob := strings.Cut(s, "*"); glob {
		if before = strings.Trim(before, "/"); before != "" && matchPath(before) == "" {
			return fmt.Sprintf("a path covers all that lies below it: %q", before)
		}
		return "a path covers all that lies below it; \".\" is the whole repository"
	}
	near := strings.TrimPrefix(path.Clean("/"+strings.TrimSpace(s)), "/")
	if near == "" {
		near = "."
	}
	if strings.HasPrefix(s, "../") || strings.Contains(s, "/../") || near == s || matchPath(near) != "" {
		return ""
	}
	return fmt.Sprintf("did you mean %q?", near)
}

// urlPathHint returns the path of a URL that s probably means.
func urlPathHint(s string) string {
	near := s
	if _, rest, ok := strings.Cut(s, "://"); ok {
		_, near, _ = strings.Cut(rest, "/")
	}
	near = "/" + strings.TrimPrefix(near, "/")
	if near == s || matchURLPath(near) != "" {
		return ""
	}
	return fmt.Sprintf("did you mean %q?", short(near))
}
