package checkpoint_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/musterhq/muster/reconciler/checkpoint"
	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

var update = flag.Bool("update", false, "write testdata/v1.checkpoint")

var at = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const (
	password = "correct horse"
	token    = "bearer of tidings"
	content  = "listen on all addresses"
	sealed   = "age-encryption.org/v1 of something"
)

// harmless is what a mistake says that quotes no value which is replaced.
const harmless = "is both 1 and 2"

func quoted(value string) string { return fmt.Sprintf("%q", value) }

// web is a job with values that are nobody's business.
func web(version string) *schema.Job {
	return &schema.Job{
		Name: "web", User: "search", Cell: "c", Kind: schema.Service, Priority: 200, Tasks: 2,
		Task: schema.TaskSpec{
			Process:   schema.Process{Command: []string{"serve", version}},
			Resources: schema.TaskResources{Resources: schema.Resources{CPUMilli: 100, RAMBytes: 1 << 20, DiskBytes: 1 << 20}},
			Health:    &schema.Health{HTTP: &schema.HTTPCheck{Port: "web", Path: "/", Headers: map[string]string{"Authorization": token}}},
			Env:       map[string]string{"PASSWORD": password, "EMPTY": ""},
			Files:     map[string]schema.TaskFile{"web.conf": {Content: content}},
			Secrets:   map[string]schema.TaskSecret{"key": {Sealed: &schema.SealedSecret{Version: "v1", Age: sealed}}},
		},
		Update: schema.UpdatePolicy{MaxParallel: 1},
	}
}

func packageOf(j schema.Job) *schema.Package {
	j.Task.Secrets = map[string]schema.TaskSecret{"key": {}}
	return &schema.Package{
		Dir:     "teams/search",
		Objects: schema.Objects{Jobs: []schema.Job{j}, Secrets: []schema.Secret{{Name: "key", User: "search", Cell: "c", Age: sealed}}},
		Origins: map[schema.ObjectKey]schema.Position{},
	}
}

// cell is a cell with one job, of which one task runs on the one machine that there is.
func cell(t *testing.T) (*model.State, *model.Observed) {
	t.Helper()
	j := web("1")
	p := packageOf(*j)
	digest, of := schema.DigestOf(j), schema.DigestOf(p)
	machine := schema.MachineInfo{Name: "m1", Boot: "boot-1", Capacity: schema.Resources{CPUMilli: 4000, RAMBytes: 1 << 30, DiskBytes: 1 << 30}, Attributes: map[string]string{"rack": "r1"}}
	s := model.NewState("c")
	name := j.ID()
	head := schema.Head{Commit: strings.Repeat("ab", 20), Packages: map[string]schema.Digest{p.Dir: of}, Stale: map[string][]schema.Diagnostic{p.Dir: {
		{Field: "job.web.tasks", Message: harmless},
		{Field: "job.web.task.env.PASSWORD", Message: "is both 1 and " + quoted(password), Expected: quoted(password)},
		{Field: "job.web.task.health.http.headers.Authorization", Message: "is both 1 and " + quoted(token)},
		{Field: "job.web.task.files.conf.content", Message: "is both 1 and " + quoted(content)},
		{Field: "secret.key.age", Message: "is both 1 and " + quoted(sealed)},
		{Field: "job.web.task", Message: "is both 1 and {env: {PASSWORD: " + quoted(password) + "}}"},
		{Field: "_base.env.PASSWORD", Message: "is both 1 and " + quoted(password)},
		{Message: "correct is not defined", Hint: "write text in quotes: " + quoted(password)},
	}}, Unread: []schema.Diagnostic{{Message: "cannot read " + quoted(password)}}}
	docs := map[string]any{
		model.KeyCounter:                     uint64(7),
		model.KeyHead:                        head,
		model.KeyPackage + string(of):        p,
		model.KeyData + string(digest):       j,
		model.KeyMachine + "m1":              schema.MachineRecord{MachineInfo: machine, Epoch: 3, Joined: at.Add(-time.Hour)},
		model.KeyJob + name.Short():          schema.JobRecord{Name: name, Admitted: digest, Good: digest, Proven: []schema.Digest{j.Task.RunDigest()}, Since: at.Add(-time.Hour)},
		model.KeyChunk + name.Short() + "/0": schema.Chunk{Job: name, Tasks: []schema.TaskRecord{{Index: 0, Generation: 7, Machine: "m1", Data: digest, At: at.Add(-time.Minute)}}},
	}
	for key, v := range docs {
		if err := s.Apply([]model.Write{s.Document(key, v)}); err != nil {
			t.Fatal(err)
		}
	}
	o := model.NewObserved(at.Add(-time.Hour))
	o.AddReport(schema.Report{Machine: machine, View: 4, Tasks: []schema.TaskStatus{{
		Task: name.Task(0), Generation: 7, State: schema.Running, Incarnation: 1, PID: 17, StartedAt: at.Add(-time.Minute), Data: digest,
	}}}, at.Add(-time.Minute))
	o.AddReport(o.Last("m1").Report, at.Add(-time.Second))
	o.AddUsage(&schema.MachineUsage{Machine: "m1"}, at.Add(-2*time.Second))
	o.ChangeContent("m1", &schema.ContentChange{Added: []schema.Digest{schema.DigestOf("image")}})
	return s, o
}

func written(t *testing.T, redaction string) []byte {
	t.Helper()
	s, o := cell(t)
	h := checkpoint.HeaderOf(s, o, s.Head.Commit, at)
	h.Release, h.Redaction = "1.2.3", redaction
	var b bytes.Buffer
	if err := checkpoint.Write(&b, h, s, o); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func read(t *testing.T, b []byte) *checkpoint.Cell {
	t.Helper()
	c, err := checkpoint.Read(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestWholeCell: what is read is what was written, and it is described as the live cell is.
func TestWholeCell(t *testing.T) {
	t.Parallel()
	s, o := cell(t)
	c := read(t, written(t, ""))
	if a, b := slices.SortedFunc(model.DocumentsOf(s), byKey), slices.SortedFunc(model.DocumentsOf(c.State), byKey); !reflect.DeepEqual(a, b) {
		t.Errorf("documents: %s", cmp.Diff(fmt.Sprintf("%q", a), fmt.Sprintf("%q", b)))
	}
	if a, b := slices.Collect(model.SavedOf(o)), slices.Collect(model.SavedOf(c.Observed())); !reflect.DeepEqual(a, b) {
		t.Errorf("observed: %s", cmp.Diff(a, b))
	}
	got, _, err := c.Look().Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	last := control.Step(control.Input{State: s, Desired: intent.Of(s), Observed: o, Now: at, Seed: control.Seed("c", s.Head.Commit)})
	want := status.Describe(status.DescribeInput{State: s, Observed: o, Last: last, Head: s.Head.Commit, Now: at})
	if diff := cmp.Diff(want.Tasks, got.Whole().Tasks); diff != "" {
		t.Errorf("tasks: %s", diff)
	}
	if diff := cmp.Diff(want.Machines, got.Whole().Machines); diff != "" {
		t.Errorf("machines: %s", diff)
	}
}

func byKey(a, b model.Write) int { return strings.Compare(a.Key, b.Key) }

// TestRedaction: no value is in a checkpoint that was not asked for them, and yet it is a
// cell in which what a commit changes is seen.
func TestRedaction(t *testing.T) {
	t.Parallel()
	b := written(t, "key of this test")
	z, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	text, err := z.DecodeAll(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	digest := string(schema.DigestOf(web("1"))) // by which values could be guessed
	for _, value := range []string{password, token, content, sealed, digest, string(schema.DigestOf(packageOf(*web("1"))))} {
		if bytes.Contains(text, []byte(value)) {
			t.Errorf("a checkpoint without values has %q", value)
		}
	}
	if !bytes.Contains(text, []byte(harmless)) {
		t.Error("a mistake that quotes no value is left out")
	}
	c := read(t, b)
	if err := c.State.Audit(); err != nil {
		t.Error(err)
	}
	r := checkpoint.NewRedactor(c.Redaction)
	adopts := func(p *schema.Package) *intent.Desired {
		commit := r.Commit(schema.Compiled{Commit: strings.Repeat("cd", 20), Packages: []schema.CompiledPackage{{Dir: p.Dir, Package: p, Digest: schema.DigestOf(p)}}})
		return intent.Adopt(c.State, intent.Of(c.State), commit, at).Next
	}
	name := web("1").ID()
	// The same commit again: the data of the job is what runs, so nothing is to be done.
	if next := adopts(packageOf(*web("1"))); next != nil && next.Jobs[name].Digest != c.State.Jobs[name].Admitted {
		t.Error("the same job is another one without its values")
	}
	other := web("1")
	other.Task.Env = map[string]string{"PASSWORD": "battery staple"}
	next := adopts(packageOf(*other))
	if next == nil || next.Jobs[name].Digest == c.State.Jobs[name].Admitted {
		t.Error("another value is not seen")
	}
}

// TestCut: a part of a checkpoint is no smaller cell.
func TestCut(t *testing.T) {
	t.Parallel()
	b := written(t, "")
	for n := range b {
		if _, err := checkpoint.Read(bytes.NewReader(b[:n])); err == nil {
			t.Fatalf("%d of %d bytes are read as a cell", n, len(b))
		}
	}
}

// TestWrong: what is no checkpoint, or one of a later release, is said to be that.
func TestWrong(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":          "it is no checkpoint of muster",
		"{}\n":      "it is no checkpoint of muster",
		"a: b\nx\n": "it is no checkpoint of muster",
		`{"format":"muster checkpoint","version":9,"release":"7.0.0"}` + "\n":            "version 9 of the format",
		`{"format":"muster checkpoint","version":1}` + "\n":                              "it ends too early",
		`{"format":"muster checkpoint","version":1}` + "\nend 7\n":                       "its lines are not as many",
		`{"format":"muster checkpoint","version":1}` + "\ndoc head []\nend 2\n":          "it is damaged: document head",
		`{"format":"muster checkpoint","version":1}` + "\nmachine {\"name\":7}\nend 2\n": "it is damaged: machine 1",
		`{"format":"muster checkpoint","version":1}` + "\nend 1\nmachine {}\n":           "its lines are not as many",
	} {
		var b bytes.Buffer
		z, err := zstd.NewWriter(&b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := z.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := checkpoint.Read(&b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
	for text, want := range map[string]string{
		"package main\n":   "it is no checkpoint of muster",
		"m1\n":             "it is no checkpoint of muster", // shorter than what zstd begins with
		"\x28\xb5":         "it ends too early",
		"\x28\xb5\x2f\xfd": "it ends too early",
	} {
		if _, err := checkpoint.Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

// TestGolden: the file that this release wrote first is read by all later ones.
func TestGolden(t *testing.T) {
	t.Parallel()
	const name = "testdata/v1.checkpoint"
	if *update {
		if err := os.WriteFile(name, written(t, ""), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	c := read(t, b)
	task := c.State.Record(web("1").ID().Task(0))
	if task == nil || task.Machine != "m1" || c.State.Data[task.Data].Task.Env["PASSWORD"] != password {
		t.Errorf("task %+v", task)
	}
	if status := c.Observed().Status("m1", web("1").ID().Task(0), 7); status == nil || status.PID != 17 {
		t.Errorf("status %+v", status)
	}
	if c.Commit != strings.Repeat("ab", 20) || !c.At.Equal(at) || c.Release != "1.2.3" {
		t.Errorf("header %+v", c.Header)
	}
}
