package compile_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/musterhq/muster/schema/compile"
)

// TestMemoryGivenBack: what a master holds of a package that makes megabytes of a few lines is given back
// some commits after one that removes it. It is not parallel: the heap is that of the process.
func TestMemoryGivenBack(t *testing.T) {
	const large = "package p\n\nimport (\"list\", \"strings\")\n\n" +
		"job: {for i in list.Range(0, 100, 1) {\"j\\(i)\": {user: \"a\", cell: \"local\", task: {process: command: [\"x\"], env: X: strings.Repeat(\"x\", %d)}}}}\n"
	const mib = 1 << 20
	c := compiler(t, compile.Config{Workers: 1})
	without := tree(shared(map[string]string{"teams/a/p/p.cue": "package p\n"}))
	held := func(what string) int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what finalizers have freed
		runtime.ReadMemStats(&m)
		t.Logf("%s: %d KiB", what, m.HeapAlloc>>10)
		return int64(m.HeapAlloc)
	}
	if _, err := c.Compile(t.Context(), without); err != nil {
		t.Fatal(err)
	}
	before := held("before")
	for n := range 3 { // edited, each time other data
		out, err := c.Compile(t.Context(), tree(shared(map[string]string{"teams/a/p/p.cue": fmt.Sprintf(large, 40_000+n)})))
		if err != nil {
			t.Fatal(err)
		}
		if now := held("with it") - before; now < 3*mib {
			t.Fatalf("the package holds %d bytes: the test tests nothing", now)
		}
		runtime.KeepAlive(out)
	}
	for range compile.KeepRounds + 1 {
		if _, err := c.Compile(t.Context(), without); err != nil {
			t.Fatal(err)
		}
	}
	if after := held("after") - before; after > mib {
		t.Errorf("%d bytes are still held", after)
	}
	runtime.KeepAlive(c)
}
