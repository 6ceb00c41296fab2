package compile_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/musterhq/muster/schema/compile"
)

// TestApart makes two of the mistakes of a style in one package, in different objects: each is said as
// it is without the other one.
func TestApart(t *testing.T) {
	t.Parallel()
	for style, pairs := range map[string][][2]string{
		"mixins": {
			{"a shard without a beginning", "an alloc set with too many slots"},
			{"a shard without a beginning", "a gang of nobody"},
			{"a shard without a beginning", "a quota of nobody"},
			{"encryption without a certificate", "a machine in a bad rack"}, // both were reported before
		},
		"tables": {
			{"an application without its name", "a row with a misspelled name"},
			{"a row without what it runs", "a size in capitals"},
		},
	} {
		t.Run(style, func(t *testing.T) {
			t.Parallel()
			ar, err := txtar.ParseFile("testdata/styles/" + style + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			files := map[string]string{}
			for _, f := range ar.Files {
				files[f.Name] = string(f.Data)
			}
			mistakes := ar.Files[len(ar.Files)-1].Name
			good, all := files[team], slips(t, files[mistakes])
			delete(files, team)
			delete(files, mistakes)
			named := func(name string) slip {
				i := slices.IndexFunc(all, func(s slip) bool { return s.name == name })
				if i < 0 {
					t.Fatalf("no mistake is %q", name)
				}
				return all[i]
			}
			for i, p := range pairs {
				files[fmt.Sprintf("teams/t%d/%s", i, team)] = named(p[1]).apply(t, named(p[0]).apply(t, good))
			}
			out := compiledTree(t, compiler(t, compile.Config{}), files)
			for i, p := range pairs {
				got := saidOf(out, fmt.Sprintf("teams/t%d", i))
				for _, name := range p {
					if want := named(name).want; !strings.Contains(got, want) {
						t.Errorf("%s is not reported beside another mistake:\n%s\nwant\n%s", name, got, want)
					}
				}
				if n := strings.Count("\n"+got, "\n") - strings.Count("\n"+got, "\n\t"); n != 3 {
					t.Errorf("%q: %d are reported:\n%s", p, n-1, got)
				}
			}
		})
	}
}
