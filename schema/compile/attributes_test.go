package compile

import (
	"strings"
	"testing"
)

// TestFirstEmbed: an @embed is found in a file of any size and depth, and only where CUE reads one.
func TestFirstEmbed(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("a: {", 1<<20)
	for text, line := range map[string]int{
		"package a\n\n_v: _ @embed(file=v.yaml)\n":                                          3,
		"package a\n// " + strings.Repeat("x", maxParsed) + "\n_v: _ @embed(glob=*.yaml)\n": 3,
		"package a\n" + deep + "\nb: _ @embed(file=v)":                                      3,
		"package a\n// @embed(file=v)\n_v: \"@embed(file=v)\"\n_w: 1 @embedded(file=v)\n":   0,
	} {
		at := firstEmbed([]byte(text))
		if got := at.IsValid(); got != (line > 0) || got && at.Line() != line {
			t.Errorf("%.40q: line %d, want %d", text, at.Line(), line)
		}
	}
}
