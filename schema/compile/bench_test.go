package compile_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
	"github.com/musterhq/muster/schema/compile/synthetic"
)

func compileAll(b testing.TB, c *compile.Compiler, t schema.Tree, jobs int) schema.Compiled {
	b.Helper()
	out, err := c.Compile(b.Context(), t)
	if err != nil {
		b.Fatal(err)
	}
	if d := compile.Diagnostics(out); len(d) > 0 {
		b.Fatalf("diagnostics: %v", d[0])
	}
	n := 0
	for _, p := range out.Packages {
		n += len(p.Package.Objects.Jobs)
	}
	if n != jobs {
		b.Fatalf("%d jobs, want %d", n, jobs)
	}
	return out
}

// BenchmarkCompile compiles 10,000 and 50,000 jobs, 100 in a package: all of
// them, with nothing changed, and with one line changed. Beside the time it
// prints the processor time of parent and children together, and the most
// memory that was resident in them at one moment.
func BenchmarkCompile(b *testing.B) {
	for _, jobs := range []int{10_000, 50_000} {
		b.Run(fmt.Sprint(jobs), func(b *testing.B) { benchCompile(b, jobs) })
	}
}

func benchCompile(b *testing.B, jobs int) {
	files := synthetic.Files(jobs/100, 100)
	whole := tree(files)
	c := compiler(b, compile.Config{})
	b.Run("cold", func(b *testing.B) {
		m := startMeter(b)
		for b.Loop() {
			c = compiler(b, compile.Config{})
			compileAll(b, c, whole, jobs)
		}
		m.report()
	})
	b.Run("unchanged", func(b *testing.B) {
		m := startMeter(b)
		for b.Loop() {
			compileAll(b, c, whole, jobs)
		}
		m.report()
	})
	b.Run("line", func(b *testing.B) {
		name := synthetic.File(7, 3)
		var trees []schema.Tree
		for n := range 20 {
			t := schema.Tree{Files: maps.Clone(whole.Files)}
			text := synthetic.Edit(files[name], n)
			t.Files[name] = schema.File{Hash: string(schema.DigestBytes([]byte(text))), Data: []byte(text)}
			trees = append(trees, t)
		}
		m := startMeter(b)
		n := 0
		for b.Loop() { // a tree comes again when its package is forgotten
			compileAll(b, c, trees[n%len(trees)], jobs)
			n++
		}
		m.report()
	})
}
