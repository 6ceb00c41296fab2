package scaffold_test

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	schemacue "github.com/musterhq/muster/schema/cue"
	"github.com/musterhq/muster/schema/scaffold"
)

const job, names = "muster/job.cue", "muster/names.cue"

func states(changes []scaffold.Change) map[string]scaffold.State {
	out := map[string]scaffold.State{}
	for _, c := range changes {
		if c.State != scaffold.Current {
			out[c.Path] = c.State
		}
	}
	return out
}

// TestCompare changes files of a repository that is current.
func TestCompare(t *testing.T) {
	t.Parallel()
	ours := scaffold.Definitions()
	file := string(ours[job])
	line, body, _ := strings.Cut(file, "\n\n")
	// The mark of another file is right for that one's body.
	another := ours[names]
	type files map[string]string
	for name, tt := range map[string]struct {
		change files // "" removes
		want   map[string]scaffold.State
	}{
		"as it is":               {},
		"windows":                {change: files{job: strings.ReplaceAll(file, "\n", "\r\n")}},
		"missing":                {change: files{job: ""}, want: map[string]scaffold.State{job: scaffold.New}},
		"written otherwise":      {change: files{job: string(another)}, want: map[string]scaffold.State{job: scaffold.Outdated}},
		"without a mark":         {change: files{job: body}, want: map[string]scaffold.State{job: scaffold.Outdated}},
		"edited since":           {change: files{job: file + "\n// mine\n"}, want: map[string]scaffold.State{job: scaffold.Kept}},
		"edited, of another":     {change: files{job: string(another) + "// mine\n"}, want: map[string]scaffold.State{job: scaffold.Edited}},
		"edited, without a mark": {change: files{job: body + "// mine\n"}, want: map[string]scaffold.State{job: scaffold.Edited}},
		"a mark that is none":    {change: files{job: line[:60] + "\n\n" + body}, want: map[string]scaffold.State{job: scaffold.Edited}},
		"empty":                  {change: files{job: "\n"}, want: map[string]scaffold.State{job: scaffold.Edited}},
		"no longer written":      {change: files{"muster/old.cue": string(another)}, want: map[string]scaffold.State{"muster/old.cue": scaffold.Obsolete}},
		"that, edited":           {change: files{"muster/old.cue": string(another) + "// mine\n"}, want: map[string]scaffold.State{"muster/old.cue": scaffold.Edited}},
		"the user's own":         {change: files{"muster/own.cue": "package muster\n", "muster/a/b.cue": string(another), "x.cue": string(another)}},
	} {
		present := map[string][]byte{}
		maps.Copy(present, ours)
		for path, text := range tt.change {
			present[path] = []byte(text)
			if text == "" {
				delete(present, path)
			}
		}
		changes := scaffold.Compare(present)
		if tt.want == nil {
			tt.want = map[string]scaffold.State{}
		}
		if d := cmp.Diff(tt.want, states(changes)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		// What is written brings it to the state in which nothing is to do.
		for path, b := range scaffold.Apply(changes) {
			if present[path] = b; b == nil {
				delete(present, path)
			}
		}
		again := scaffold.Compare(present)
		if len(scaffold.Apply(again)) > 0 {
			t.Errorf("%s: after the update: %v", name, states(again))
		}
	}
}

// TestPast knows the definitions that were written before there were marks.
func TestPast(t *testing.T) {
	t.Parallel()
	old := []byte(firstNames)
	present := scaffold.Definitions()
	present[names] = old
	if got := states(scaffold.Compare(present))[names]; got != scaffold.Outdated {
		t.Errorf("the first names.cue is %q, want %q", got, scaffold.Outdated)
	}
	present[names] = bytes.Replace(old, []byte("{0,61}"), []byte("{0,20}"), 1)
	if got := states(scaffold.Compare(present))[names]; got != scaffold.Edited {
		t.Errorf("the first names.cue, edited, is %q, want %q", got, scaffold.Edited)
	}
}

// TestMark holds the mark to its place: before the package comment, and apart
// from it.
func TestMark(t *testing.T) {
	t.Parallel()
	for name, body := range schemacue.Files() {
		got := scaffold.Definitions()["muster/"+name]
		lines := slices.Collect(strings.Lines(string(got)))
		if !strings.HasPrefix(lines[0], "// Written by muster") || lines[1] != "\n" || strings.Join(lines[2:], "") != string(body) {
			t.Errorf("%s begins with %q", name, lines[:3])
		}
	}
}

func TestFilesErrors(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{{"config", "local"}, {"example.com/config", "Local"}, {"example.com/a\nb", "local"}, {"", "local"}, {"example.com/config", ""}} {
		if _, err := scaffold.Files(c[0], c[1]); err == nil {
			t.Errorf("Files(%q, %q) succeeds", c[0], c[1])
		}
	}
}

// firstNames is muster/names.cue as the first version wrote it.
const firstNames = `// Package muster holds the definitions of what this repository may declare.
// It was written by ` + "`" + `muster init` + "`" + `. The cell checks the data again against its
// own copy, so an edit here can make rules stricter but never looser. Defaults
// are filled in by the cell and shown by ` + "`" + `muster render` + "`" + `; they are not CUE
// defaults, so that a definition of yours can give others that its users may
// override, as in: #Service: #Job & {tasks: *2 | int}.
package muster

// #Name is the grammar of the names of users, jobs, cells, tenants, quotas and
// ports: 1 to 63 lower-case letters, digits and inner hyphens (a DNS label).
// Example: "web-front".
#Name: =~"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"

// #Band is a range of priorities that share their rules of quota and
// preemption: free 0-99, batch 100-199, production 200-299,
// monitoring 300-399.
#Band: "free" | "batch" | "production" | "monitoring"
`
