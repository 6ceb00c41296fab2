package screen

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/musterhq/muster/schema"
)

func TestPrintf(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	Printf(&b, "\x1b[K%s %v %q %-4s|%*d %s\n", "a\x1bb\n", errors.New("c\rd"), "e\x1b", "f", 3, 7, Painter(true).Paint(Red, "g\x1b"))
	const want = "\x1b[K" + `a\x1bb\n c\rd "e\x1b" f   |  7 ` + "\x1b[31mg" + `\x1b` + "\x1b[0m\n"
	if b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

func TestError(t *testing.T) {
	t.Parallel()
	joined := errors.Join(errors.New("a\nb"), fmt.Errorf("c: %w", errors.Join(errors.New("d"), errors.New("e\x1b"))))
	for want, err := range map[string]error{
		`a\nb` + "\nc: d\n" + `e\x1b`:      joined,
		`p\r: a\nb` + "\nhint: " + `h\n`:   fmt.Errorf("p\r: %w", schema.Hintf("h\n", "a\nb")),
		`x\ny`:                             errors.New("x\ny"),
		"q: stop\nhint: " + `go\n`:         fmt.Errorf("q: %w", hinted{}),
		"z\nstop\nhint: " + `go\n`:         errors.Join(errors.New("z"), hinted{}),
		`w: z\nstop` + "\nhint: " + `go\n`: fmt.Errorf("w: %w\n%w", errors.New("z"), hinted{}),
	} {
		if got := Error(err); string(got) != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// hinted is an error that has its hint in its text, and takes it apart when it is asked.
type hinted struct{}

func (hinted) Error() string               { return hinted{}.Hinted().Error() }
func (hinted) Hinted() *schema.HintedError { return schema.Hintf("go\n", "stop") }
