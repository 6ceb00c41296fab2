package compile_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/schema/compile"
)

// TestOverseen: a function that cannot be preempted, so that the child cannot look at its own limits
// while it runs, does not get beyond them. It is not parallel: all children of the process are measured.
func TestOverseen(t *testing.T) {
	digits := func(n int) string {
		return using("strconv") + fmt.Sprintf(runs, fmt.Sprintf(`"\(len(strconv.FormatFloat(1.5, 102, %d, 64)))"`, n))
	}
	tests := []struct {
		name   string
		digits int
		limits compile.Limits
		most   int64 // bytes
		want   string
	}{
		{"one large allocation", 600_000_000, compile.Limits{HeapBytes: 192 << 20}, 500 << 20, "took more than 192 MiB of memory"},
		{"a call that does not return", 900_000_000, compile.Limits{CPU: 100 * time.Millisecond}, 700 << 20, "took more than 100ms of processor time"},
	}
	for _, tt := range tests {
		stop := watchChildren(t)
		out, err := compiler(t, compile.Config{Limits: tt.limits}).Compile(t.Context(), tree(map[string]string{"p/p.cue": digits(tt.digits)}))
		child, _ := stop()
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, d := range compile.Diagnostics(out) {
			got += d.Message + "\n"
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		if child > tt.most {
			t.Errorf("%s: a child had %d MiB, want at most %d", tt.name, child>>20, tt.most>>20)
		}
	}
}
