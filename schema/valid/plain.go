package valid

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/lazyregexp"
)

// wellKnown are the forms of secrets that cannot be anything else. Each begins with a
// word that few other texts have, so that most are looked at once.
var wellKnown = []struct {
	begins string
	form   *lazyregexp.Regexp
	what   string
}{
	{"AGE-SECRET-KEY-", lazyregexp.New(`AGE-SECRET-KEY-(PQ-)?1[0-9A-Z]{20}`), "an age identity"},
	{"PRIVATE KEY-----", lazyregexp.New(`-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY-----`), "a private key"},
	{"ghp_", lazyregexp.New(`\bghp_[A-Za-z0-9]{36}\b`), "a token of GitHub"},
	{"gho_", lazyregexp.New(`\bgho_[A-Za-z0-9]{36}\b`), "a token of GitHub"},
	{"ghs_", lazyregexp.New(`\bghs_[A-Za-z0-9]{36}\b`), "a token of GitHub"},
	{"github_pat_", lazyregexp.New(`\bgithub_pat_[A-Za-z0-9_]{36}`), "a token of GitHub"},
	{"glpat-", lazyregexp.New(`\bglpat-[A-Za-z0-9_-]{20}`), "a token of GitLab"},
	{"AKIA", lazyregexp.New(`\bAKIA[A-Z2-7]{16}\b`), "an access key of AWS"},
	{"AIza", lazyregexp.New(`\bAIza[A-Za-z0-9_-]{35}\b`), "a key of Google's APIs"},
	{"xox", lazyregexp.New(`\bxox[abprs]-[0-9A-Za-z]{10,}-[0-9A-Za-z-]{10,}`), "a token of Slack"},
	{"sk_live_", lazyregexp.New(`\bsk_live_[0-9A-Za-z]{24}`), "a key of Stripe"},
	{"npm_", lazyregexp.New(`\bnpm_[A-Za-z0-9]{36}\b`), "a token of npm"},
}

// rest is what follows a form, of a private key, and of a secret that was shortened with what it
// stands in.
var rest = func() *lazyregexp.Regexp {
	forms := []string{`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[^"]*`}
	for i := range wellKnown {
		forms = append(forms, regexp.QuoteMeta(wellKnown[i].begins)+`[0-9A-Za-z_-]*…`)
	}
	return lazyregexp.New(strings.Join(forms, "|"))
}()

// Concealed returns a text in which a value may be quoted, with … for each secret in clear.
func Concealed(text string) string {
	for i := range wellKnown {
		if w := &wellKnown[i]; strings.Contains(text, w.begins) {
			text = w.form.ReplaceAllString(rest.ReplaceAllString(text, "…"), "…")
		}
	}
	return text
}

// plainSecrets returns where data has a secret in clear: everybody who reads the repository,
// the store or a status sees it.
func plainSecrets(data any) (found problems) {
	var walk func(path []string, v any)
	look := func(path []string, key bool, s string) {
		for i := range wellKnown {
			if w := &wellKnown[i]; strings.Contains(s, w.begins) && w.form.MatchString(s) {
				found.add(Problem{
					Rule: schema.RuleSecret, Path: slices.Clone(path), Key: key, Message: fmt.Sprintf("contains %s in clear", w.what), Expected: "the name of a secret in task.secrets",
					Hint: "replace it where it is from, since it stays in the history, and seal the new one: muster secret edit NAME.age",
				})
				return
			}
		}
	}
	walk = func(path []string, v any) {
		switch v := v.(type) {
		case string:
			look(path, false, v)
		case []any:
			for i, e := range v {
				walk(append(path, strconv.Itoa(i)), e)
			}
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				look(append(path, k), true, k)
				walk(append(path, k), v[k])
			}
		}
	}
	walk(nil, data)
	return found
}
