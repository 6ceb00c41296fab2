package compile_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/musterhq/muster/schema/compile"
)

// childArg makes the test binary a compile child.
const childArg = "compile-child"

// lateArg makes it one that, while the file exists that is named next, ends as if its time
// were up once it is sent a package that says "// too late".
const lateArg = "compile-late"

// late is what such a child reads from.
type late struct{ io.Reader }

// Read ends the child when it reads that it is late.
func (l late) Read(b []byte) (int, error) {
	n, err := l.Reader.Read(b)
	if bytes.Contains(b[:n], []byte("// too late")) {
		os.Exit(compile.ExitWall)
	}
	return n, err
}

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
	if len(os.Args) == 3 && os.Args[1] == lateArg {
		in := io.Reader(os.Stdin)
		if _, err := os.Stat(os.Args[2]); err == nil {
			in = late{in}
		}
		_ = compile.Child(in, os.Stdout) // the parent notices
		os.Exit(0)
	}
	os.Exit(m.Run())
}
