package vendored_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema/vendored"
)

// The sum is what `sha256sum $(find . -type f | sort) | sha256sum`, in base64, gives of
// files with these names: so dirhash defines it.
func TestSum(t *testing.T) {
	t.Parallel()
	got := vendored.Sum("example.com/lib@v0", map[string][]byte{"b.cue": []byte("package b\n"), "a.cue": []byte("package a\n")})
	if want := "h1:cFyAz6wj5g9jsCPhuYrJsjr4sEugs4hvkkEchzEYl8c="; got != want {
		t.Errorf("Sum: %s, want %s", got, want)
	}
}

func TestLock(t *testing.T) {
	t.Parallel()
	var l vendored.Lock
	l.Put(vendored.Module{Module: "example.com/z@v0", Source: "../z", Sum: "h1:z"})
	l.Put(vendored.Module{Module: "example.com/lib@v1", Source: "../lib", Sum: "h1:old"})
	l.Put(vendored.Module{Module: "example.com/lib@v2", Source: "../lib", Version: "v2.0.0", Sum: "h1:new"}) // in its place
	data, err := l.Encode()
	if err != nil {
		t.Fatal(err)
	}
	back, fault := vendored.Parse(data)
	if fault != nil {
		t.Fatal(fault)
	}
	if d := cmp.Diff(l, back); d != "" || len(back.Modules) != 2 {
		t.Errorf("read again: %s", d)
	}
	for path, want := range map[string]string{"example.com/lib": "example.com/lib", "example.com/lib/a/b": "example.com/lib", "example.com/library": ""} {
		got := ""
		if m := l.Find(path); m != nil {
			got = m.Path()
		}
		if got != want {
			t.Errorf("Find(%s): %q, want %q", path, got, want)
		}
	}
}

// What somebody wrote by hand, or means harm with.
func TestParseErrors(t *testing.T) {
	t.Parallel()
	module := func(path string) string { return `{"module": "` + path + `", "source": "../x", "sum": "h1:x"}` }
	for text, want := range map[string]string{
		`{`:                               "is not the JSON that muster vendor writes",
		`{"version": 2}`:                  "is of version 2",
		strings.Repeat(" ", 1<<20) + "{}": "more than 1048576",
		`{"version": 1, "modules": [` + strings.Repeat(module("a.b/c@v0")+",", 100) + module("a.b/c@v0") + `]}`: "lists 101 modules",
		`{"version": 1, "modules": [` + module("../../etc@v0") + `]}`:                                           "is not the path of a module",
		`{"version": 1, "modules": [` + module("a.b/../c@v0") + `]}`:                                            "is not the path of a module",
		`{"version": 1, "modules": [` + module("a.b/.git@v0") + `]}`:                                            "is not the path of a module",
		`{"version": 1, "modules": [` + module("a.b/c") + `]}`:                                                  "is not the path of a module",
		`{"version": 1, "modules": [` + module(`a.b/\u001b[31m@v0`) + `]}`:                                      "is not the path of a module",
		`{"version": 1, "modules": [` + module("a.b/c@v0") + "," + module("a.b/c/d@v0") + `]}`:                  "within each other",
		`{"version": 1, "modules": [` + module("a.b/c@v0") + "," + module("a.b/c@v1") + `]}`:                    "at the same place",
		`{"version": 1, "modules": [` + module("a.b/C@v0") + "," + module("a.b/c@v1") + `]}`:                    "at the same place",
		`{"version": 1, "modules": [{"module": "a.b/c@v0", "source": "../x", "sum": "sha256:x"}]}`:              "has no source, or no sum",
	} {
		_, fault := vendored.Parse([]byte(text))
		if fault == nil || !strings.Contains(fault.Message, want) || fault.Path != vendored.File || fault.Hint == "" {
			t.Errorf("%.80s: %v, want %q", text, fault, want)
		}
	}
	_, fault := vendored.Parse([]byte("{\"version\": 1, \"modules\": [\n  " + module("a.b/c") + "]}"))
	if fault == nil || fault.Position.String() != vendored.File+":2:14" {
		t.Errorf("place: %v", fault)
	}
}
