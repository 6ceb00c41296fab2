package compile_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/musterhq/muster/schema/compile"
)

// childArg makes the test binary a compile child.
const childArg = "compile-child"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == childArg {
		if err := compile.Child(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) == 2 && os.Args[1] == probeArg {
		_ = compile.Child(prober{}, os.Stdout) // the prober ends it
	}
	os.Exit(m.Run())
}
