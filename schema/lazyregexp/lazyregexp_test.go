package lazyregexp_test

import (
	"regexp"
	"sync"
	"testing"

	"github.com/musterhq/muster/schema/lazyregexp"
)

// A lazy expression finds what one finds that is compiled at once, from several goroutines.
func TestSameAsCompiled(t *testing.T) {
	t.Parallel()
	const expr, text = `([a-z])([0-9]+)`, "a1 b22 c"
	lazy, eager := lazyregexp.New(expr), regexp.MustCompile(expr)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if got, want := lazy.FindAllStringSubmatch(text, -1), eager.FindAllStringSubmatch(text, -1); len(got) != 2 || got[1][2] != want[1][2] {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
	all.Wait()
	if !lazy.MatchString("z9") || lazy.MatchString("9") || lazy.ReplaceAllString(text, "$2") != "1 22 c" || string(lazy.Find([]byte(text))) != "a1" {
		t.Error("does not do what a compiled expression does")
	}
}

// An expression that is none is found when it is used.
func TestNone(t *testing.T) {
	t.Parallel()
	none := lazyregexp.New(`(`)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	none.MatchString("")
}
