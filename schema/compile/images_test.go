package compile_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema/compile"
)

func TestImages(t *testing.T) {
	t.Parallel()
	const src = "\ufeff" + `package a

import "example.com/config/muster" // a comment with image: "no"

job: web: muster.#Job & {
	task: container: {
		image:   "é" // kept
		command: ["image"]
	}
	labels: image: "no"
}
job: chain: task: container: image: "chain"
job: raw: task: container: {image: #"raw"#}
job: lines: task: container: image: """
	lines
	"""
job: quoted: task: "container": "image": "quoted"
job: named: task: container: image: _image
job: again: task: container: image: _image
job: whole: task: container: _whole
job: choice: task: container: image: *"default" | "other" | string
job: both: task: container: image: string & "both"
#In: muster.#Container & {image: "unified"}
job: embed: task: container: {muster.#Container, if true {image: "embed"}}
job: loop: task: container: image: _loop
job: computed: task: container: image: "a\(_image)"
job: far: task: container: image: lib.image
job: bytes: task: container: image: 'bytes'
job: bound: task: container: image: =~"x" & !="y"
job: type: task: container: image: string
job: empty: task: container: image: ""
_image: "named"
_whole: {image: "whole"}
_loop: _loop
`
	found, err := compile.Images("a.cue", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	with := map[compile.WrittenImage]string{}
	for _, img := range found {
		got = append(got, fmt.Sprintf("%d:%d %q %t", img.Line, img.Column, img.Text, img.Computed))
		if !img.Computed {
			with[img] = "<" + img.Text + ">"
		}
	}
	want := []string{
		`7:12 "é" false`, `12:37 "chain" false`, `13:36 "raw" false`, `14:37 "lines" false`, `17:42 "quoted" false`,
		`21:39 "default" false`, `21:51 "other" false`, `22:45 "both" false`, `23:34 "unified" false`, `24:66 "embed" false`,
		`26:40 "" true`, `27:35 "" true`, `31:37 "" false`, `32:9 "named" false`, `33:17 "whole" false`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
	changed := src
	for _, w := range []string{`"é"`, `"chain"`, `"quoted"`, `"default"`, `"other"`, `"both"`, `"unified"`, `"embed"`, `"named"`, `"whole"`} {
		changed = strings.Replace(changed, w, `"<`+strings.Trim(w, `"`)+`>"`, 1)
	}
	changed = strings.Replace(changed, `#"raw"#`, `"<raw>"`, 1)
	changed = strings.Replace(changed, "\"\"\"\n\tlines\n\t\"\"\"", `"<lines>"`, 1)
	changed = strings.Replace(changed, `empty: task: container: image: ""`, `empty: task: container: image: "<>"`, 1)
	if diff := cmp.Diff(changed, string(compile.ReplaceImages([]byte(src), with))); diff != "" {
		t.Errorf("replaced (-want +got):\n%s", diff)
	}
	if got := compile.ReplaceImages([]byte(src), nil); string(got) != src {
		t.Error("nothing replaced, and it is another file")
	}
	if _, err := compile.Images("a.cue", []byte("job: {")); err == nil || !strings.Contains(err.Error(), "expected") {
		t.Errorf("a file that does not parse: %v", err)
	}
}

// FuzzImages: what is found can be replaced by itself, and then is found again.
func FuzzImages(f *testing.F) {
	for _, s := range []string{"container: image: \"a\"", "a: container: {image: *'''\n'''|#\"b\"#}", "#Container & {image: \"\\u00e9\"}", "container: _x, _x: container: _x", "container: image: \"\"\"\r\n\tx\r\n\t\"\"\""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		found, err := compile.Images("a.cue", []byte(src))
		if err != nil {
			return
		}
		with := map[compile.WrittenImage]string{}
		for _, img := range found {
			if !img.Computed {
				with[img] = img.Text
			}
		}
		again, err := compile.Images("a.cue", compile.ReplaceImages([]byte(src), with))
		if err != nil || len(again) != len(found) {
			t.Fatalf("%q has %d images, replaced %d: %v", src, len(found), len(again), err)
		}
		for i := range again {
			if again[i].Text != found[i].Text {
				t.Errorf("%q: image %d is %q, was %q", src, i, again[i].Text, found[i].Text)
			}
		}
	})
}
