package intent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// volumesCommit is a commit of a cell with shared directories, and of one job that names one.
func volumesCommit(commit string, cell map[string]schema.CellVolume, job schema.TaskVolume) schema.Compiled {
	c := schema.Compiled{Commit: commit}
	add := func(dir string, key schema.ObjectKey, o schema.Objects) {
		p := &schema.Package{Dir: dir, Objects: o, Origins: map[schema.ObjectKey]schema.Position{key: {Path: dir + "/x.cue", Line: 1}}}
		c.Packages = append(c.Packages, schema.CompiledPackage{Dir: dir, Package: p, Digest: schema.DigestOf(p)})
	}
	add("cells", schema.ObjectKey{Kind: schema.KindCell, Name: "local"}, schema.Objects{Cells: []schema.Cell{{Name: "local", Volumes: cell}}})
	j := schema.Job{
		Name: "web", User: "u", Cell: "local", Kind: schema.Service, Tasks: 1,
		Task: schema.TaskSpec{Process: schema.Process{Command: []string{"a"}}, Volumes: map[string]schema.TaskVolume{"v": job, "tmp": {Path: "/t", TmpBytes: 4096}}},
	}
	add("teams", intent.KeyOf(&j), schema.Objects{Jobs: []schema.Job{j}})
	return c
}

// TestCellVolumes: jobs name what their cell declares, if it declares any, and write only where they may. A job that there
// is already stays as it is.
func TestCellVolumes(t *testing.T) {
	t.Parallel()
	declared := map[string]schema.CellVolume{"models": {ReadOnly: true}, "scratch": {}}
	for _, c := range []struct {
		name string
		cell map[string]schema.CellVolume
		job  schema.TaskVolume
		want []string // of message, expected and hint; nil: nothing is wrong
	}{
		{"nothing is declared", nil, schema.TaskVolume{Shared: "anything"}, nil},
		{"a declared one", declared, schema.TaskVolume{Shared: "scratch"}, nil},
		{"one to read", declared, schema.TaskVolume{Shared: "models", ReadOnly: true}, nil},
		{"one to read where it may be written", declared, schema.TaskVolume{Shared: "scratch", ReadOnly: true}, nil},
		{"a typing error", declared, schema.TaskVolume{Shared: "scrtach"}, []string{
			`no volume "scrtach" is declared in cell local`, "one of models, scratch", `did you mean "scratch"? Else declare it in the cell: cell: local: volumes: scrtach: {}`,
		}},
		{"another name", declared, schema.TaskVolume{Shared: "backups-2"}, []string{
			`no volume "backups-2" is declared in cell local`, "one of models, scratch", `correct the name, or declare it in the cell: cell: local: volumes: "backups-2": {}`,
		}},
		{"none is declared", map[string]schema.CellVolume{}, schema.TaskVolume{Shared: "a"}, []string{
			`no volume "a" is declared in cell local`, "no shared volume, as the cell declares none", "correct the name, or declare it in the cell: cell: local: volumes: a: {}",
		}},
		{"one to read is written to", declared, schema.TaskVolume{Shared: "models"}, []string{
			`no task may write to volume "models" of cell local`, "readOnly: true beside it", "add readOnly: true, or remove it from the volume in the cell",
		}},
	} {
		s := model.NewState("local")
		a := intent.Adopt(s, intent.Of(s), volumesCommit("1", c.cell, c.job), time.Time{})
		ds := a.Head.Stale["teams"]
		if c.want == nil {
			if len(a.Head.Stale) > 0 || len(a.Head.Packages) != 2 {
				t.Errorf("%s: refused: %+v", c.name, a.Head.Stale)
			}
			continue
		}
		if len(ds) != 1 || len(a.Head.Stale) != 1 || ds[0].Field != "job.web.task.volumes.v.shared" || ds[0].Message != c.want[0] || ds[0].Expected != c.want[1] || ds[0].Hint != c.want[2] {
			t.Errorf("%s: %+v, want %q", c.name, a.Head.Stale, c.want)
		}
	}

	s := model.NewState("local")
	for _, c := range []schema.Compiled{
		volumesCommit("1", declared, schema.TaskVolume{Shared: "scratch"}),
		volumesCommit("2", map[string]schema.CellVolume{"models": {}}, schema.TaskVolume{Shared: "scratch"}),
	} {
		a := intent.Adopt(s, intent.Of(s), c, time.Time{})
		if err := s.Apply(a.Writes); err != nil {
			t.Fatal(err)
		}
		if s.Head.Commit != c.Commit || len(intent.Of(s).Jobs) != 1 {
			t.Errorf("commit %s: %+v", c.Commit, s.Head)
		}
	}
	if taken := intent.Take(volumesCommit("2", map[string]schema.CellVolume{"models": {}}, schema.TaskVolume{Shared: "scratch"})); len(taken.Diagnostics) == 0 || !strings.Contains(taken.Diagnostics[0].Message, `no volume "scratch" is declared`) {
		t.Errorf("validate: %+v", taken.Diagnostics)
	}
}
