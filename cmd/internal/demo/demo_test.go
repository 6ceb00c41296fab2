package demo_test

import (
	"os"
	"testing"

	"github.com/musterhq/muster/cmd/internal/binaries"
	"github.com/musterhq/muster/cmd/internal/demo"
)

func TestMain(m *testing.M) { os.Exit(binaries.Main(m)) }

// TestWholeDemo is the demo without the talk: a whole cell of real processes from
// the first commit to nothing left.
func TestWholeDemo(t *testing.T) {
	t.Parallel()
	res, err := demo.Run(t.Context(), demo.Config{Bin: binaries.Dir(t), Talk: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Steps) != 7 || res.Median() == 0 {
		t.Errorf("%d steps, median %s", len(res.Steps), res.Median())
	}
}
