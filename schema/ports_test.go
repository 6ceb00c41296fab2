package schema_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/schema"
)

// asMap and asPorts are the ports of a record, and of an answer, which has the empty ones too.
type (
	asMap struct {
		Some map[string]int `json:"some,omitempty"`
		All  map[string]int `json:"all"`
	}
	asPorts struct {
		Some schema.Ports `json:"some,omitempty"`
		All  schema.Ports `json:"all"`
	}
)

// TestPortsLikeMap: their JSON is that of a map, byte for byte, whatever the names.
func TestPortsLikeMap(t *testing.T) {
	t.Parallel()
	names := rapid.OneOf(rapid.StringMatching(`[a-z0-9-]{1,9}`), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.MapOf(names, rapid.OneOf(rapid.IntRange(1, 65535), rapid.Int())).Draw(t, "ports")
		if len(m) == 0 && rapid.Bool().Draw(t, "nil") {
			m = nil
		}
		p := schema.PortsOf(m)
		for _, escapes := range []bool{true, false} {
			var want, got bytes.Buffer
			write := func(b *bytes.Buffer, v any) {
				e := json.NewEncoder(b)
				e.SetEscapeHTML(escapes)
				if err := e.Encode(v); err != nil {
					t.Fatal(err)
				}
			}
			write(&want, asMap{m, m})
			write(&got, asPorts{p, p})
			if d := cmp.Diff(want.String(), got.String()); d != "" {
				t.Fatalf("(-map +ports)\n%s", d)
			}
		}
		doc := schema.Canonical(asMap{m, m})
		if d := cmp.Diff(string(doc), string(schema.Canonical(asPorts{p, p}))); d != "" {
			t.Fatalf("canonical (-map +ports)\n%s", d)
		}
		checkRead(t, string(doc))
		for _, name := range append(slices.Collect(maps.Keys(m)), names.Draw(t, "another")) {
			want, has := m[name]
			if port, ok := p.Get(name); port != want || ok != has {
				t.Fatalf("%q is %d, %t, want %d, %t", name, port, ok, want, has)
			}
		}
	})
}

// TestPortsRead: what nobody writes is read as a map is, too.
func TestPortsRead(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{
		`null`, `{}`, `{ }`, `{"a":1}`, `{"a":1,"b":2}`, `{"b":2,"a":1}`, `{"a":1,"a":2}`, `{"a":null}`, `{"":1}`, "{\n\t\"a\": 1,\n\t\"b\": 2\n}",
		`{"a":0}`, `{"a":-1}`, `{"a":65536}`, `{"a":9223372036854775808}`, `{"a":99999999999999999999}`, `{"a":1.5}`, `{"a":1e3}`, `{"a":"1"}`, `{"a":{"b":1}}`, `{"a":[1,2]}`,
		`{"A":1,"a":2}`, `{"a,b":1}`, `{"a\":1":2}`, `{"\u0061":1}`, `{"\u0061":1,"a":2}`, `{"ü":1}`, "{\"\xff\":1}", `[]`, `[1]`, `1`, `"a"`, `true`,
	} {
		checkRead(t, `{"all":`+doc+`}`)
	}
	for _, doc := range []string{``, `{`, `{"`, `{"}`, `{":1}`, `{"a"}`, `{a":1}`, `{"a":1,}`, `{,}`} { // by who calls it directly
		if p := new(schema.Ports); p.UnmarshalJSON([]byte(doc)) == nil {
			t.Errorf("%s is %v, want an error", doc, *p)
		}
	}
}

// checkRead holds that ports are read from a document as a map is.
func checkRead(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, doc string,
) {
	t.Helper()
	var want asMap
	var got asPorts
	wantErr, gotErr := json.Unmarshal([]byte(doc), &want), json.Unmarshal([]byte(doc), &got)
	if (wantErr != nil) != (gotErr != nil) {
		t.Fatalf("%s: error %v, and of a map %v", doc, gotErr, wantErr)
	}
	if wantErr != nil {
		return
	}
	if d := cmp.Diff(asPorts{schema.PortsOf(want.Some), schema.PortsOf(want.All)}, got); d != "" {
		t.Fatalf("%s: (-map +ports)\n%s", doc, d)
	}
	if !slices.IsSortedFunc(got.All, func(a, b schema.Port) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) }) {
		t.Fatalf("%s: %v is not sorted", doc, got.All)
	}
}

// TestPortsSmall: to read one port allocates its name and itself, without room for more.
func TestPortsSmall(t *testing.T) {
	var p schema.Ports
	doc := []byte(`{"http":20001}`)
	n := testing.AllocsPerRun(100, func() {
		if err := p.UnmarshalJSON(doc); err != nil {
			t.Fatal(err)
		}
	})
	if n != 2 || cap(p) != 1 {
		t.Errorf("%v allocations and room for %d, want 2 and 1", n, cap(p))
	}
}

// BenchmarkDecodeChunk decodes a stored document of tasks with one port each. Of the heap,
// a record keeps B/record: itself and what it refers to.
func BenchmarkDecodeChunk(b *testing.B) {
	chunk := schema.Chunk{Job: schema.JobName{Cell: "c", User: "u", Job: "web"}}
	for i := range schema.ChunkSize {
		chunk.Tasks = append(chunk.Tasks, schema.TaskRecord{
			Index: i, Generation: uint64(i + 1), Machine: "m1", Data: "sha256:1", At: time.Unix(1, 0).UTC(), Ports: schema.Ports{{Name: "http", Port: 20000 + i}},
		})
	}
	doc := schema.Canonical(&chunk)
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	b.ReportAllocs()
	kept, before := make([]schema.Chunk, b.N), heap()
	b.ResetTimer()
	for i := range kept {
		if _, err := schema.Decode(doc, &kept[i]); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(heap()-before)/float64(b.N*schema.ChunkSize), "B/record")
	runtime.KeepAlive(kept)
}
