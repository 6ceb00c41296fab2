package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/reconciler/checkpoint"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/plan"
)

// TestPrintFit: each task that has room is on a line, where there are racks.
func TestPrintFit(t *testing.T) {
	t.Parallel()
	for want, racks := range map[string]map[string]int{
		"search/web has 2 tasks: 7 more fit\n  rack r1: 4\n  on machines without a rack: 3\nthe next: no room\n": {"r1": 4, "": 3},
		"search/web has 2 tasks: 7 more fit\nthe next: no room\n":                                                {"": 7},
	} {
		var b bytes.Buffer
		if err := printFit(&b, &plan.Fit{Job: "search/web", Has: 2, More: 7, Racks: racks, Next: "no room"}); err != nil || b.String() != want {
			t.Errorf("%v: got %q, want %q", err, b.String(), want)
		}
	}
}

// TestLoseSelected: of the machines that a selector picks those are lost that are up, and one that
// is named has to be up.
func TestLoseSelected(t *testing.T) {
	t.Parallel()
	saved, err := readCheckpoint("../../reconciler/checkpoint/testdata/v1.checkpoint")
	if err != nil {
		t.Fatal(err)
	}
	gone := *saved.State.Machines["m1"]
	gone.Name = "m2"
	saved.State.Machines["m2"] = &gone
	var b bytes.Buffer
	if err := checkpoint.Write(&b, saved.Header, saved.State, model.ObservedOf(saved.Machines, saved.At)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "c.checkpoint")
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args string
		code int
		want string
	}{
		{"-l machine", 0, "\nleft out, since they are not up: m2\n"},
		{"-l machine -o json", 0, `"left out, since they are not up: m2"`},
		{"m2", exitInvalid, "cell c has no machine that is up and called m2"},
		{"m2 -l machine", exitInvalid, "cell c has no machine that is up and called m2"},
		{"-l machine=m2", exitInvalid, "no machine is picked that is up: m2"},
		{"-l machine=m9", exitInvalid, "no machine is picked\n"},
	} {
		var out, complaint bytes.Buffer
		code := run(t.Context(), strings.Fields("simulate lose --against "+file+" "+tc.args), stdio{nil, &out, &complaint})
		if got := out.String() + complaint.String(); code != tc.code || !strings.Contains(got, tc.want) {
			t.Errorf("%s: code %d, want %d with %q:\n%s", tc.args, code, tc.code, tc.want, got)
		}
	}
}
