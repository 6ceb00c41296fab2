package loop_test

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/musterhq/muster/nodeagent/loop"
	"github.com/musterhq/muster/schema"
)

func TestPrintable(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                           "",
		"serving 12 of 40 shards":    "serving 12 of 40 shards",
		"  padded\t":                 "padded",
		"a\x00b\x07c":                "abc",
		"red \x1b[31;1malarm\x1b[0m": "red alarm",
		"\x1b]0;title\x07text":       "text",
		"\x1b]8;;http://x\x1b\\link": "link",
		"\x1b]0;never ends":          "",
		"\x1bPq#0\x1b\\after":        "after",
		"\x1bcreset":                 "reset",
		"\x1b":                       "",
		"\x1b[":                      "",
		"bad \xff\xfe bytes":         "bad  bytes",
		"\u009b31mC1":                "31mC1",
		"left\u202eright\u2066x":     "leftrightx",
		"größer \u4e16\u754c":        "größer 世界",
	} {
		if got := loop.Printable(in, 100); got != want {
			t.Errorf("printable(%q) is %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]string{
		"0123456789 and more than this": "0123456789", strings.Repeat("é", 10): strings.Repeat("é", 5), "123456789é": "123456789",
	} {
		if got := loop.Printable(in, 10); got != want {
			t.Errorf("10 bytes of printable(%q) are %q, want %q", in, got, want)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	for _, s := range []string{"", "a", "\x1b[31m", "\x1b]0;x", "\xff", "\u202e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := loop.Printable(s, schema.MaxLine)
		if len(got) > schema.MaxLine || !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("printable(%q) is %q", s, got)
		}
		if again := loop.Printable(got, schema.MaxLine); again != got {
			t.Errorf("printable(%q) is %q, and of that %q", s, got, again)
		}
	})
}

// TestLine: what tasks say of themselves is in the report, and however often they
// say something else, there is one hint in three seconds.
func TestLine(t *testing.T) {
	bubble(t, func(s *story) {
		s.assign(assignment("web", 0, 1, schema.Service), assignment("web", 1, 2, schema.Service))
		s.until("u/web/0 g1 running", "u/web/1 g2 running")
		say := func(line string) {
			s.kernel.mu.Lock()
			defer s.kernel.mu.Unlock()
			for _, p := range s.kernel.procs {
				p.line = line
			}
		}
		say("  \nready\x1b[0m: 3 shards\nmore\n")
		time.Sleep(4 * time.Second)
		rest()
		for _, task := range s.agent.Report().Tasks {
			if task.Line != "ready: 3 shards" {
				t.Errorf("%s says %q", task.Task.Short(), task.Line)
			}
		}
		before := s.agent.hints.Load()
		for i := range 600 {
			say(strings.Repeat("x", i%100))
			time.Sleep(100 * time.Millisecond)
		}
		rest()
		if n := s.agent.hints.Load() - before; n < 15 || n > 21 {
			t.Errorf("%d hints in a minute of news, want about 20", n)
		}
		s.kernel.exit("web/0", schema.Exit{Code: 1})
		s.until("u/web/0 g1 waiting", "u/web/1 g2 running")
		if got := s.agent.Report().Tasks[0].Line; got != "" {
			t.Errorf("a task that does not run says %q", got)
		}
	})
}
