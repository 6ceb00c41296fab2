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

// BenchmarkCompany compiles what 100 teams of a company write of 20 applications each, for
// five environments, through its library: as it is, and with one mistake in the library, which
// every job has then. It prints what BenchmarkCompile does.
func BenchmarkCompany(b *testing.B) {
	const teams, applications, environments = 100, 20, 5
	files := synthetic.Company(teams, applications)
	b.Run("cold", func(b *testing.B) {
		m := startMeter(b)
		for b.Loop() {
			compileAll(b, compiler(b, compile.Config{}), tree(files), teams*applications*environments)
		}
		m.report()
	})
	b.Run("mistake", func(b *testing.B) {
		wrong := maps.Clone(files)
		synthetic.InLibrary(wrong)
		m := startMeter(b)
		for b.Loop() {
			out, err := compiler(b, compile.Config{}).Compile(b.Context(), tree(wrong))
			if err != nil {
				b.Fatal(err)
			}
			mistakes := out.Mistakes()
			if len(mistakes) != 1 || mistakes[0].Path != "lib/web/web.cue" {
				b.Fatalf("%d mistakes, want one in the library: %v", len(mistakes), mistakes)
			}
		}
		m.report()
	})
}
