package screen

import (
	"bytes"
	"testing"
)

func TestTame(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "",
		"größer 世界 👩\u200d💻\tand\r\nmore":       "größer 世界 👩\u200d💻\tand\r\nmore",
		"\x1b[31;1mred\x1b[0m \x1b[38:2:1:2:3m": "\x1b[31;1mred\x1b[0m \x1b[38:2:1:2:3m",
		"\x1b]0;title\x07":                      "^[]0;title^G",
		"\x1b]52;c;bHM=\x1b\\":                  "^[]52;c;bHM=^[\\",
		"\x1b[2J\x1b[H":                         "^[[2J^[[H",
		"\x1bP$q\"p\x1b\\":                      "^[P$q\"p^[\\",
		"\x1b[6n\x1bc":                          "^[[6n^[c",
		"\u009b31m\xff\u202e":                   "\ufffd31m\ufffd\ufffd",
		"a\x00b\bc\x7f":                         "a^@b^Hc\ufffd",
		"end \x1b[3":                            "end ", // it may yet be a colour
	} {
		whole, single := &bytes.Buffer{}, &bytes.Buffer{}
		if _, err := (&Tame{Out: whole}).Write([]byte(in)); err != nil || whole.String() != want {
			t.Errorf("%q is %q, %v, want %q", in, whole, err, want)
		}
		by := &Tame{Out: single}
		for _, c := range []byte(in) {
			if _, err := by.Write([]byte{c}); err != nil {
				t.Fatal(err)
			}
		}
		if single.String() != want {
			t.Errorf("%q byte by byte is %q, want %q", in, single, want)
		}
	}
}
