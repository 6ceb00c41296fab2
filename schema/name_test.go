package schema_test

import (
	"regexp"
	"testing"

	"github.com/musterhq/muster/schema"
)

// nameOracle is the grammar as the CUE definitions have it.
var nameOracle = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// FuzzNames compares the grammar with a regular expression, and checks that a
// name that parses is printed as it was written.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"", "a", "-a", "a-", "a-b", "A", "local/search/web", "local/search/web/0", "local/search/web/00", "a//b", "a/b/c/-1", "a\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, want := schema.CheckName(s) == nil, nameOracle.MatchString(s); got != want {
			t.Errorf("CheckName(%q): %v, the expression says %v", s, got, want)
		}
		if n, err := schema.ParseJobName(s); err == nil {
			b, err := n.MarshalText()
			var back schema.JobName
			if err != nil || string(b) != s || back.UnmarshalText(b) != nil || back != n {
				t.Errorf("job name %q becomes %q", s, b)
			}
		}
		if n, err := schema.ParseTaskName(s); err == nil {
			b, err := n.MarshalText()
			var back schema.TaskName
			if err != nil || string(b) != s || back.UnmarshalText(b) != nil || back != n {
				t.Errorf("task name %q becomes %q", s, b)
			}
		}
	})
}
