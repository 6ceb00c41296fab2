package schema_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/schema"
)

func TestSelector(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"tier": "front", "env": "prod", "app.example/name": "web", "empty": "", "note": `a "b", c`}
	for text, want := range map[string]bool{
		"tier=front":                      true,
		"tier==front":                     true,
		"tier = front":                    true,
		"tier=back":                       false,
		"tier!=back":                      true,
		"tier!=front":                     false,
		"gone!=front":                     true,
		"gone=front":                      false,
		"tier":                            true,
		"gone":                            false,
		"!tier":                           false,
		"! gone":                          true,
		"tier in (back, front)":           true,
		"tier in (back)":                  false,
		"tier notin (back,mid)":           true,
		"tier notin (front)":              false,
		"gone notin (front)":              true,
		"gone in (front)":                 false,
		"tier=front,env=prod":             true,
		"tier=front, env=test":            false,
		"app.example/name=web":            true,
		`empty=""`:                        true,
		`empty!=""`:                       false,
		`note="a \"b\", c"`:               true,
		`note in ("x", "a \"b\", c")`:     true,
		"in in (a), notin":                false,
		"tier,env in (prod,test),!gone":   true,
		" tier=front , env notin (test) ": true,
	} {
		s, err := schema.ParseSelector(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := s.Matches(labels); got != want {
			t.Errorf("%s: matches %v, want %v", text, got, want)
		}
	}
}

func TestSelectorMistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                "column 1: want the key of a label",
		"tier=":           `column 6: want a value; the empty one is ""`,
		"tier=front,":     "column 12: want the key of a label",
		"tier=front env":  "column 12: want a comma and another requirement",
		"tier front":      "column 6: want =, !=, in",
		"tier in front":   "column 9: want values in brackets",
		"tier in ()":      "column 10: want a value",
		"tier in (a b)":   "column 12: want a comma or a closing bracket",
		"tier in (a":      "column 11: want a comma or a closing bracket",
		`tier="front`:     "column 12: want a closing quote",
		"tier>3":          "column 5: want a comma and another requirement",
		"é=1":             "column 1: want the key of a label",
		`tier="é" x`:      "column 10: want a comma and another requirement",
		"!tier=front":     "column 6: want a comma and another requirement",
		"tier=front|back": "column 11: want a comma and another requirement",
	} {
		_, err := schema.ParseSelector(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestSelectorText: what a selector prints parses to what picks the same.
func TestSelectorText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SampledFrom([]string{"a", "in", "notin", "x/y"})
		value := rapid.OneOf(rapid.SampledFrom([]string{"", "1", "in", ")", `\`, `"`}), rapid.String())
		var terms []string
		for range rapid.IntRange(1, 4).Draw(t, "terms") {
			k, v, w := key.Draw(t, "key"), quoted(value.Draw(t, "v")), quoted(value.Draw(t, "w"))
			terms = append(terms, rapid.SampledFrom([]string{
				k, "!" + k, k + "=" + v, k + "!=" + v, k + " in (" + v + "," + w + ")", k + " notin (" + v + ", " + w + ")",
			}).Draw(t, "term"))
		}
		text := strings.Join(terms, ",")
		s, err := schema.ParseSelector(text)
		if err != nil {
			t.Fatal(err)
		}
		again, err := schema.ParseSelector(s.String())
		if err != nil {
			t.Fatal(err)
		}
		if again.String() != s.String() {
			t.Fatalf("%s prints %s, then %s", text, s, again)
		}
		labels := rapid.MapOf(key, value).Draw(t, "labels")
		if s.Matches(labels) != again.Matches(labels) {
			t.Fatalf("%s and %s differ on %q", text, s, labels)
		}
	})
}

func quoted(v string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(v) + `"`
}
