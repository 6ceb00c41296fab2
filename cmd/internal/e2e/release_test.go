package e2e_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/cmd/internal/binaries"
	"github.com/musterhq/muster/reconciler"
	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
	"github.com/musterhq/muster/schema/compile/synthetic"
)

// TestRelease moves a repository to other definitions, as `muster schema update`
// does after a release: every package is evaluated again, and since the data of
// the jobs is the same, the head's commit is all that is written, and no job has
// anything to do.
func TestRelease(t *testing.T) {
	t.Parallel()
	compiler := compile.New(compile.Config{Exe: filepath.Join(binaries.Dir(t), "muster"), Args: []string{"compile-child"}})
	state, now := model.NewState("local"), time.Unix(1_000_000, 0)
	// settle takes a commit and steps until there is nothing to do; it returns
	// the keys of what was written.
	settle := func(commit string, files map[string]string) (adopted, stepped []string) {
		t.Helper()
		tree := schema.Tree{Commit: commit, Files: map[string]schema.File{}}
		for name, text := range files {
			tree.Files[name] = schema.File{Hash: string(schema.DigestBytes([]byte(text))), Data: []byte(text)}
		}
		out, err := compiler.Compile(t.Context(), tree)
		if err != nil {
			t.Fatal(err)
		}
		if d := compile.Diagnostics(out); len(d) > 0 {
			t.Fatal(d)
		}
		apply := func(writes []model.Write) (keys []string) {
			for _, w := range writes {
				keys = append(keys, w.Key)
			}
			if err := state.Apply(writes); err != nil {
				t.Fatal(err)
			}
			return keys
		}
		writes, _ := reconciler.Adopt(state, intent.Of(state), out, now)
		adopted = apply(writes)
		for range 10 {
			step := control.Step(control.Input{State: state, Observed: model.NewObserved(now), Now: now})
			if len(step.Writes) == 0 {
				return adopted, stepped
			}
			stepped = append(stepped, apply(step.Writes)...)
		}
		t.Fatal("the cell does not come to rest")
		return nil, nil
	}
	files := synthetic.Files(3, 20)
	if adopted, stepped := settle("1", files); len(adopted) < 4 || len(stepped) < 60 {
		t.Fatalf("the first commit writes %v and %v", adopted, stepped)
	}
	for name := range files {
		if strings.HasPrefix(name, compile.SchemaDir+"/") {
			files[name] += "\n// Of a later release.\n#OfLater: {field?: int}\n"
		}
	}
	adopted, stepped := settle("2", files)
	if diff := cmp.Diff([]string{"head"}, adopted); diff != "" {
		t.Error(diff)
	}
	if len(stepped) > 0 || state.Head.Commit != "2" {
		t.Errorf("a step writes %v; the head is %s", stepped, state.Head.Commit)
	}
	// The test would see work: one changed value is some.
	name := synthetic.File(0, 0)
	files[name] = synthetic.Edit(files[name], 1)
	if adopted, stepped := settle("3", files); len(adopted) != 3 || len(stepped) == 0 {
		t.Errorf("a change writes %v and %v", adopted, stepped)
	}
}
