package schema_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/schema"
)

// slowly makes canonical JSON the obvious way: decode, and encode maps.
func slowly(t interface{ Fatal(...any) }, v any) []byte {
	plain, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(plain))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(tree); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// tree is a value with everything that decides about bytes: keys that need
// sorting and quoting, numbers of all sizes, and JSON that was written by hand.
func anyValue(depth int) *rapid.Generator[any] {
	text := rapid.OneOf(
		rapid.String(),
		rapid.SampledFrom([]string{"", "a", "aa", "<&>", "\u2028", "ä", "\xff", "\"", "\\", "\n", "\x00", "é\xc3", "\U0001F600", "a\"b", "z"}),
	)
	leaf := rapid.OneOf(
		rapid.Map(text, func(s string) any { return s }),
		rapid.Map(rapid.Int64(), func(n int64) any { return n }),
		rapid.Map(rapid.Float64Range(-1e30, 1e30), func(f float64) any { return f }),
		rapid.SampledFrom([]any{nil, true, false, json.Number("1e400"), json.Number("-0"), json.Number("0"), json.Number("-12345678901234567890"), uint64(math.MaxUint64), []byte("bytes")}),
		rapid.SampledFrom([]any{
			json.RawMessage(`{"b": 1, "a": [ 1.50, {"d":"\u0041","c":"\/"} ], "b": {"y":1,"x":2}}`),
			json.RawMessage("\"\u2028\xff\""), json.RawMessage(` [] `), json.RawMessage(`{"\u0061":1,"a":2,"A":3}`),
		}),
	)
	if depth == 0 {
		return leaf
	}
	below := anyValue(depth - 1)
	return rapid.OneOf(
		leaf,
		rapid.Map(rapid.SliceOfN(below, 0, 5), func(l []any) any { return l }),
		rapid.Map(rapid.MapOfN(text, below, 0, 8), func(m map[string]any) any { return m }),
		rapid.Custom(func(t *rapid.T) any {
			return struct {
				Zebra  any    `json:"zebra"`
				Apple  any    `json:"apple,omitempty"`
				Escape string `json:"e<s"`
				Middle any    `json:"middle"`
				Last   map[string]any
			}{below.Draw(t, "zebra"), below.Draw(t, "apple"), text.Draw(t, "escape"), below.Draw(t, "middle"), map[string]any{"b": 1, "a": 2}}
		}),
	)
}

// TestCanonical compares Canonical with the obvious way to do it.
func TestCanonical(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		v := anyValue(3).Draw(t, "value")
		if want, got := slowly(t, v), schema.Canonical(v); !bytes.Equal(want, got) {
			t.Fatalf("want %s\n got %s", want, got)
		}
	})
}

// TestCanonicalDeep: what is nested deeply is written as anything else.
// TestCanonicalPackage: a package of many jobs has the canonical JSON that it would have at once.
func TestCanonicalPackage(t *testing.T) {
	t.Parallel()
	p := &schema.Package{Dir: `"objects":{"jobs":null`, Origins: map[schema.ObjectKey]schema.Position{}, Places: map[schema.ObjectKey]map[string]string{
		{Kind: schema.KindJob, Name: `"jobs":null`}: {"jobs": "null"},
	}}
	p.Objects.Cells = []schema.Cell{{Name: `\"jobs":null`}}
	for i := range 200 {
		key := schema.ObjectKey{Kind: schema.KindJob, Name: fmt.Sprintf("j%d", i)}
		p.Origins[key] = schema.Position{Path: "p.cue", Line: i, Column: 1}
		p.Objects.Jobs = append(p.Objects.Jobs, schema.Job{Name: key.Name, Cell: "<&>\u2028", Annotations: map[string]string{"b": strings.Repeat("x", 10_000), "a": "\""}})
		if i < 60 && i%20 > 0 || i > 70 && i%50 > 0 {
			continue
		}
		if got, want := schema.Canonical(p), slowly(t, p); !bytes.Equal(got, want) {
			t.Fatalf("with %d jobs: %.300s\nwant %.300s", i+1, got, want)
		}
	}
}

// TestCanonicalMemory: canonical JSON of a large package takes little more memory than it is long, though its jobs are not
// in the order of canonical JSON. It is not parallel: the allocations are those of the process.
func TestCanonicalMemory(t *testing.T) {
	p := &schema.Package{}
	for i := range 200 {
		p.Objects.Jobs = append(p.Objects.Jobs, schema.Job{Name: fmt.Sprintf("j%d", i), Annotations: map[string]string{"a": strings.Repeat("x", 10_000)}})
	}
	size := len(schema.Canonical(p))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	schema.Canonical(p)
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > uint64(2*size) {
		t.Errorf("%d bytes are allocated for %d", used, size)
	}
}

func TestCanonicalDeep(t *testing.T) {
	t.Parallel()
	v := any(map[string]any{"b": "ä", "a": []any{}})
	for range 300 {
		v = map[string]any{"b": []any{v, nil, []any(nil)}, "a": map[string]any(nil)}
	}
	if want, got := slowly(t, v), schema.Canonical(v); !bytes.Equal(want, got) {
		t.Fatalf("want %s\n got %s", want, got)
	}
}

// cycle is a value that holds itself.
func cycle() any {
	m := map[string]any{}
	m["m"] = []any{m}
	return m
}

// TestCanonicalPanics gives values that no document of ours has.
func TestCanonicalPanics(t *testing.T) {
	t.Parallel()
	for _, v := range []any{make(chan int), math.NaN(), json.Number("no number"), json.Number("007"), json.Number("-"), cycle()} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%T has a canonical form", v)
				}
			}()
			schema.Canonical(v)
		}()
	}
}

// BenchmarkCanonical makes the document of a job, as the master does for all
// that it writes.
func BenchmarkCanonical(b *testing.B) {
	j := schema.Job{
		Name: "web", User: "search", Cell: "local", Tasks: 3, Labels: map[string]string{"tier": "front", "component": "search"},
		Task: schema.TaskSpec{
			Process: schema.Process{Command: []string{"/usr/bin/server", "--port=$(MUSTER_PORT_HTTP)"}},
			Env:     map[string]string{"GREETING": "hello", "BACKEND": "local/search/backend"},
		},
	}
	b.ReportAllocs()
	for b.Loop() {
		schema.Canonical(&j)
	}
}
