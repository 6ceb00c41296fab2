package schema_test

import (
	"testing"

	"github.com/musterhq/muster/schema"
)

func TestPrintable(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"teams/a/web.cue": "teams/a/web.cue", "a\x1b[31m.cue": `a\x1b[31m.cue`, "x\r\ny": `x\r\ny`, "ä b": "ä b", "a\u202eb": `a\u202eb`,
		"a\xffb": `a\xffb`, "a\uFFFDb": "a\uFFFDb", "tab\t": `tab\t`, "\x7f": `\x7f`, "\u009b31m": `\u009b31m`, "\U000e0001": `\U000e0001`, "": "",
	} {
		if got := schema.Printable(s); got != want {
			t.Errorf("%q: %q, want %q", s, got, want)
		}
	}
	d := schema.Diagnostic{Position: schema.Position{Path: "a\x1b"}, Message: "m\n"}.Printable()
	if d.Path != `a\x1b` || d.Message != `m\n` {
		t.Errorf("%+v", d)
	}
}
