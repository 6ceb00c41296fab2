package schema

import "testing"

func TestEmbeds(t *testing.T) {
	t.Parallel()
	for cue, want := range map[string]bool{
		"":                                   false,
		"package a\n":                        false,
		"x: string @embed(file=\"a\")":       true,
		"// x: @embed(file=\"a\")":           false,
		"\t // see @embed, and @embed\nx: 1": false,
		"// @embed\nx: _ @embed(file=\"a\")": true,
		"x: 1 // as with @embed":             true, // it may as well be in a text
	} {
		if got := Embeds([]byte(cue)); got != want {
			t.Errorf("%q embeds: %t", cue, got)
		}
	}
}
