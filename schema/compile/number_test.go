package compile_test

import (
	"fmt"
	"strings"
	"testing"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/cuecontext"

	"github.com/musterhq/muster/schema/compile"
)

// TestNumbersBeyond: a number that CUE would take for another one is an error where it is written, in
// each format; the largest that it holds are not.
func TestNumbersBeyond(t *testing.T) {
	t.Parallel()
	job := "package p\n\njob: web: {user: \"a\", cell: \"local\", tasks: 1, task: process: command: [%s]}\n"
	embeds := "@extern(embed)\n\npackage p\n\n_x: _ @embed(file=%s)\n" + strings.TrimPrefix(fmt.Sprintf(job, `"x"`), "package p\n\n")
	tests := []struct {
		name  string
		files map[string]string
		want  string // "" if it is taken
	}{
		{"tasks", map[string]string{"p.cue": strings.ReplaceAll(fmt.Sprintf(job, `"x"`), "tasks: 1", "tasks: 1e1000000")}, "p/p.cue:3:45: the number 1e1000000 is beyond"},
		{"interpolation", map[string]string{"p.cue": fmt.Sprintf(job, `"\(1e200000)"`)}, "p/p.cue:3:76: the number 1e200000 is beyond"},
		{"a small one", map[string]string{"p.cue": fmt.Sprintf(job, `"\(1e-1_000_000)"`)}, "p/p.cue:3:76: the number 1e-1_000_000 is beyond"},
		{"many digits", map[string]string{"p.cue": fmt.Sprintf(job, `"x"`) + "_n: " + strings.Repeat("9", 100_002) + "\n"}, "p/p.cue:4:5: the number 999999999999999999999999… is beyond"},
		{"the exponent of more digits than an int", map[string]string{"p.cue": fmt.Sprintf(job, `"x"`) + "_n: 1e99999999999999999999\n"}, "p/p.cue:4:5: the number 1e99999999999999999999 is"},
		{"json", map[string]string{"p.cue": fmt.Sprintf(embeds, "a.json"), "a.json": "{\n  \"n\": 5e999999\n}\n"}, "p/a.json:2:8: the number 5e999999 is beyond"},
		{"jsonl", map[string]string{"p.cue": fmt.Sprintf(embeds, "a.jsonl"), "a.jsonl": "[1]\n[5e999999]\n"}, "p/a.jsonl:2:2: the number 5e999999 is beyond"},
		{"yaml, in which it is text", map[string]string{"p.cue": fmt.Sprintf(embeds, "a.yaml"), "a.yaml": "m: \"5e999999\"\nn: 5e+999999\n"}, ""},
		{"toml", map[string]string{"p.cue": fmt.Sprintf(embeds, "a.toml"), "a.toml": "n = 5e999999\n"}, "p/a.toml:1:5: the number 5e999999 is beyond"},
		{"json as text", map[string]string{"p.cue": fmt.Sprintf(embeds, "a.json, type=text"), "a.json": "{\"n\": 1e999999}\n"}, ""},
		{"text that is read", map[string]string{"p.cue": using("encoding/json") + "_x: json.Unmarshal(\"{\\\"n\\\": 1e999999}\")\n"}, "p/p.cue:5:20: the number 1e999999 is beyond"},
		{"text that another name reads", map[string]string{"p.cue": "package p\n\nimport j \"encoding/json\"\n\n_x: j.Unmarshal(\"[1e999999]\")\n"}, "p/p.cue:5:17: the number 1e999999 is beyond"},
		{"text that is read, and right", map[string]string{"p.cue": using("encoding/json") + "_x: json.Unmarshal(\"[1e99999]\")\n_y: \"[1e999999]\"\n"}, ""},
		{"embedded text that is read", map[string]string{"p.cue": strings.Replace(fmt.Sprintf(embeds, "a.json, type=text"), "package p\n", "package p\n\nimport \"encoding/json\"\n\n_y: json.Unmarshal(_x)\n", 1), "a.json": "{\"n\": 1e999999}\n"}, "p/a.json:1:7: the number 1e999999 is beyond"},
		{"toml as bytes", map[string]string{"p.cue": fmt.Sprintf(embeds, "a.toml, type=binary"), "a.toml": "n = 1e999999\n"}, ""},
		{"several as text", map[string]string{"p.cue": strings.Replace(fmt.Sprintf(embeds, `"*/*.json", type=text`), "file=", "glob=", 1), "x/a.json": "[1e999999]\n"}, ""},
		{"cue as text", map[string]string{"p.cue": fmt.Sprintf(embeds, `"_a.cue", type=text`), "_a.cue": "n: 1e999999\n"}, ""},
		{"cue of the package, also as text", map[string]string{"p.cue": fmt.Sprintf(embeds, "a.cue, type=text"), "a.cue": "package p\n\n_n: 1e999999\n"}, "p/a.cue:3:5: the number 1e999999 is beyond"},
		{"json, also as text", map[string]string{"p.cue": fmt.Sprintf(embeds, "a.json") + "_y: _ @embed(file=a.json, type=text)\n", "a.json": "[1e999999]\n"}, "p/a.json:1:2: the number 1e999999 is beyond"},
		{"json by another name", map[string]string{"p.cue": fmt.Sprintf(embeds, "a.txt, type=json"), "a.txt": "[1e999999]\n"}, "p/a.txt:1:2: the number 1e999999 is beyond"},
		{"json that is not embedded", map[string]string{"p.cue": fmt.Sprintf(embeds, "a.json"), "a.json": "[1]\n", "x/a.json": "[1e999999]\n"}, ""},
		{"what is text", map[string]string{"p.cue": fmt.Sprintf(job, `"1e1000000"`) + "// 1e1000000\n"}, ""},
		{"the largest", map[string]string{"p.cue": fmt.Sprintf(job, `"x"`) + "_n: [1e100000, 0.1e100000, 1e-100000, 0xe1000000]\n"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			files := map[string]string{}
			for name, text := range tt.files {
				files["p/"+name] = text
			}
			out, err := compiler(t, compile.Config{}).Compile(t.Context(), tree(files))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, d := range errorsOf(out) {
				got += fmt.Sprintf("%s: %s\n", d.Position, d.Message)
			}
			if tt.want == "" && got != "" || !strings.HasPrefix(got, tt.want) || strings.Count(got, "\n") > 1 {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// TestNumbersOfCUE: the bound is that of CUE, which is no part of its API.
func TestNumbersOfCUE(t *testing.T) {
	t.Parallel()
	for text, holds := range map[string]bool{
		"1e100000 > 1e99999": true, "1e100001 > 1e99999": false, "10e100000 > 1e99999": false, "0.1e100001 > 1e99999": false,
		"1e-100000 < 1e-99999": true, "1e-100001 < 1e-99999": false,
	} {
		v, err := cuecontext.New().CompileString("x: " + text).LookupPath(cue.ParsePath("x")).Bool()
		if got := err == nil && v; got != holds {
			t.Errorf("%s is %v (%v), want %v", text, got, err, holds)
		}
	}
}
