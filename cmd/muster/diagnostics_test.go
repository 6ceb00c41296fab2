package main

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema"
)

// compiled makes what validate prints of: one file and its mistakes.
func compiled(dir, content string, ds ...schema.Diagnostic) *compiledRepo {
	return &compiledRepo{
		dir: dir, diagnostics: ds,
		tree: schema.Tree{Files: map[string]schema.File{"a/a.cue": {Data: []byte(content)}}},
	}
}

func mistake(line, column int, message string) schema.Diagnostic {
	return schema.Diagnostic{
		Severity: schema.Error, Rule: schema.RuleSyntax, Position: schema.Position{Path: "a/a.cue", Line: line, Column: column}, Message: message,
	}
}

// TestCaret checks that the caret stands under the column: behind tabs, wide and
// joining characters, in lines that are cut, and at the ends.
func TestCaret(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("0123456789", 30)
	for _, c := range []struct {
		name, line string
		column     int
		want       string
	}{
		{"plain", `user: "a"`, 7, "     1 | user: \"a\"\n       |       ^\n"},
		{"tabs", "\t\tx:\ty", 6, "     1 | \t\tx:\ty\n       | \t\t  \t^\n"},
		{"wide", `"日本" x`, 10, "     1 | \"日本\" x\n       |        ^\n"},
		{"emoji", `"🎉" x`, 8, "     1 | \"🎉\" x\n       |      ^\n"},
		{"accent", "\"e\u0301\" x", 7, "     1 | \"e\u0301\" x\n       |     ^\n"},
		{"end", "ab", 3, "     1 | ab\n       |   ^\n"},
		{"beyond", "ab", 9, "     1 | ab\n"},
		{"return", "ab\r", 1, "     1 | ab\n       | ^\n"},
		{"mark", "\ufeffab", 5, "     1 | ab\n       |  ^\n"},
		{"escape", "a\x1b[31mb", 7, "     1 | a\\x1b[31mb\n       |          ^\n"},
		{"long", long, 151, "     1 | …" + long[90:150] + long[150:199] + "…\n       | " + strings.Repeat(" ", 61) + "^\n"},
		{"long at its beginning", long, 1, "     1 | " + long[:110] + "…\n       | ^\n"},
	} {
		var b strings.Builder
		printSource(&b, false, schema.Position{Path: "a/a.cue", Line: 1, Column: c.column}, []byte(c.line))
		if diff := cmp.Diff(c.want, b.String()); diff != "" {
			t.Errorf("%s: -want +got\n%s", c.name, diff)
		}
	}
}

// TestText checks the layout: one paragraph for each mistake, and nothing that a
// file holds reaches the terminal as an order to it.
func TestText(t *testing.T) {
	t.Parallel()
	d := mistake(1, 1, "unknown \x1b[2J field")
	d.Field, d.Expected, d.Hint = "job.web", "x", "y\u202e"
	var b strings.Builder
	printDiagnostics(&b, true, []schema.Diagnostic{d, {Severity: schema.Warning, Message: "no place"}}, compiled("", "ab").tree.Files)
	want := "\x1b[1ma/a.cue:1:1: \x1b[0m\x1b[31merror:\x1b[0m job.web: unknown \\x1b[2J field\n     1 | ab\n       | \x1b[31m^\x1b[0m\n" +
		"  want: x\n  \x1b[32mhint:\x1b[0m y\\u202e\n\n\x1b[33mwarning:\x1b[0m no place\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestGitHub checks the escapes of workflow commands, that a place that is not
// known is left out, and that paths begin where the workflow stands.
func TestGitHub(t *testing.T) {
	t.Parallel()
	d := mistake(1, 12, "unknown field \"100%\nx\"")
	d.Rule, d.Path, d.Field = schema.RuleUnknownField, "a,b:c%.cue", "job.web"
	c := compiled("fleet/", "", d, schema.Diagnostic{Severity: schema.Warning, Rule: schema.RuleOwnership, Message: "no tenant is declared"}, mistake(1, 10, "x"))
	c.tree.Files["a/a.cue"] = schema.File{Data: []byte(`"日本" x`)}
	var b strings.Builder
	printGitHub(&b, c)
	want := "::error file=fleet/a%2Cb%3Ac%25.cue,line=1,col=12,title=muster%3A unknown-field::job.web: unknown field \"100%25\\nx\"\n" +
		"::warning title=muster%3A ownership::no tenant is declared\n" +
		"::error file=fleet/a/a.cue,line=1,col=6,title=muster%3A syntax::x\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestSARIF holds the log to what the standard requires of the parts that it
// has: SARIF 2.1.0 §3.13 (log), §3.14 (run), §3.27 (result), §3.30 (region), and
// to what code scanning asks for beyond: a place for each result.
func TestSARIF(t *testing.T) {
	t.Parallel()
	d := mistake(2, 18, "is the string \"x\"")
	d.Rule, d.Field = schema.RuleWrongType, "job.web.tasks"
	c := compiled(".", "x\n\"日本🎉\" tasks", d, schema.Diagnostic{Severity: schema.Warning, Rule: schema.RuleOwnership, Message: "no tenant is declared"})
	c.diagnostics[1].Path = ""
	odd := mistake(1, 1, "odd")
	odd.Path = "a b/ü:#?.cue"
	c.diagnostics = append(c.diagnostics, odd)
	b, err := json.Marshal(sarifOf(c))
	if err != nil {
		t.Fatal(err)
	}
	var log sarifLog
	if err := json.Unmarshal(b, &log); err != nil {
		t.Fatal(err)
	}
	if log.Version != "2.1.0" || len(log.Runs) != 1 || log.Runs[0].Tool.Driver.Name == "" {
		t.Fatalf("not a log: %s", b)
	}
	run := log.Runs[0]
	if run.ColumnKind != "utf16CodeUnits" && run.ColumnKind != "unicodeCodePoints" {
		t.Errorf("columnKind %q", run.ColumnKind)
	}
	if len(run.Results) != 3 {
		t.Fatalf("%d results", len(run.Results))
	}
	for _, r := range run.Results {
		if rule := run.Tool.Driver.Rules[r.RuleIndex]; rule.ID != r.RuleID || rule.ShortDescription.Text == "" {
			t.Errorf("ruleIndex %d is not %s", r.RuleIndex, r.RuleID)
		}
		if r.Level != "error" && r.Level != "warning" || r.Message.Text == "" || len(r.Locations) != 1 || r.PartialFingerprints["muster/v1"] == "" {
			t.Errorf("result %+v", r)
		}
		p := r.Locations[0].Physical
		if u, err := url.Parse(p.Artifact.URI); err != nil || u.IsAbs() || u.Path == "" || strings.HasPrefix(u.Path, "/") || u.Fragment+u.RawQuery != "" {
			t.Errorf("uri %q: %v", p.Artifact.URI, err)
		}
		if p.Region != nil && (p.Region.StartLine < 1 || p.Region.StartColumn < 1) {
			t.Errorf("region %+v", *p.Region)
		}
	}
	// `"日本🎉" ` is 13 bytes, 6 characters and 7 UTF-16 code units; column 18
	// in bytes is past the end of nothing: it is the last letter of tasks.
	if got := run.Results[0].Locations[0].Physical.Region; got.StartLine != 2 || got.StartColumn != 18-13+7 {
		t.Errorf("region %+v", *got)
	}
	if got := run.Results[1].Locations[0].Physical; got.Artifact.URI != "cue.mod/module.cue" || got.Region != nil {
		t.Errorf("a mistake without a place: %+v", got)
	}
}
