package main

import (
	"bytes"
	"context"
	"encoding"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler/history"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
)

// hostile is text that would change a terminal, its title and what is around it. Its line
// that poses as one of ours must not begin a line.
const hostile = "a\x1b]0;b\a\x1b[2Jc\rd\ne\tf\u009b31mg\x7fh\u202ei\u2066j\nposing: k"

// harmful returns what of an output a terminal would act on, "" if nothing.
func harmful(out string) string {
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "posing:") {
			return fmt.Sprintf("a line that poses as ours: %q", line)
		}
		for _, r := range strings.TrimSuffix(line, "\n") {
			if r != '\t' && !unicode.IsPrint(r) {
				return fmt.Sprintf("%q in %q", r, line)
			}
		}
	}
	return ""
}

var (
	textType   = reflect.TypeFor[encoding.TextUnmarshaler]()
	jsonType   = reflect.TypeFor[json.Unmarshaler]()
	rawMessage = reflect.TypeFor[json.RawMessage]()
)

// poison fills all that a value has, strings with what is hostile.
func poison(v reflect.Value, depth int) {
	pointer := reflect.PointerTo(v.Type())
	switch {
	case depth == 0:
		return
	case v.Type() == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)))
		return
	case v.Type() == rawMessage:
		b, _ := json.Marshal(hostile)
		v.Set(reflect.ValueOf(json.RawMessage(b)))
		return
	case pointer.Implements(textType) || pointer.Implements(jsonType):
		return // it takes only what is valid
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(hostile)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64, reflect.Int32:
		v.SetInt(2)
	case reflect.Uint64, reflect.Uint32, reflect.Uint:
		v.SetUint(2)
	case reflect.Float64:
		v.SetFloat(2)
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		poison(p.Elem(), depth-1)
		v.Set(p)
	case reflect.Slice:
		s := reflect.MakeSlice(v.Type(), 1, 1)
		poison(s.Index(0), depth-1)
		v.Set(s)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		poison(key, depth-1)
		poison(value, depth-1)
		m := reflect.MakeMap(v.Type())
		m.SetMapIndex(key, value)
		v.Set(m)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				poison(f, depth-1)
			}
		}
	default:
	}
}

func poisoned[T any]() *T {
	v := new(T)
	poison(reflect.ValueOf(v).Elem(), 8)
	return v
}

// hostileMaster answers as a master all of whose strings are hostile.
func hostileMaster(t *testing.T) string {
	t.Helper()
	list := func(v any) any { return map[string]any{"items": []any{v}} }
	answers := map[string]any{
		"/v1/status": poisoned[status.Status](), "/v1/usage": poisoned[status.Usage](), "/v1/endpoints": list(poisoned[status.Endpoint]()),
		"/v1/services": list(poisoned[status.Serving]()), "/v1/why": poisoned[status.Explanation](), "/v1/why/service": poisoned[status.ServiceExplanation](),
		"/v1/events": poisoned[schema.EventRecord](), "/v1/history": []history.Entry{*poisoned[history.Entry]()}, "/v1/history/one": poisoned[history.Comparison](),
		"/v1/reconcile": poisoned[status.Look](), "/v1/commit": poisoned[status.Standing](), "/v1/suspend": poisoned[schema.Suspension](),
		"/v1/resume": poisoned[schema.Resumed](), "/v1/restart": poisoned[schema.Restarting](), "/v1/page": poisoned[client.PageAddress](), "/v1/forget": poisoned[schema.Forgetting](),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		if path == "/v1/history" && r.URL.Query().Get("commit") != "" {
			path = "/v1/history/one"
		}
		answer, ok := answers[path]
		w.Header().Set("Muster-Status-Version", "1")
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			answer = map[string]string{"error": hostile, "hint": hostile}
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// TestHostileStrings runs the commands that look at a cell whose every string is hostile:
// whatever they print, a terminal acts on nothing of it, as text and as JSON.
func TestHostileStrings(t *testing.T) {
	t.Parallel()
	master := hostileMaster(t)
	for _, line := range []string{
		"status", "status --all", "status --wide --machines --tasks", "status a/b/0", "status machine m", "top", "endpoints a/b", "services", "why a/b", "why a/b/0",
		"why service a/b", "why -l tier=front", "events", "history", "history --all abc", "page", "reconcile", "wait --timeout 1ns", "wait a/b --timeout 1ns", "wait --commit abc --timeout 1ns",
		"wait machine m --timeout 1ns", "suspend a/b --reason r", "resume a/b", "restart a/b --reason r", "restart a/b --cancel", "machine forget m --reason r", "logs a/b/0", "logs -l tier=front",
		"exec a/b/0 -- true", "plan", "checkpoint save x",
	} {
		t.Run(line, func(t *testing.T) {
			t.Parallel()
			for _, format := range []string{"", "-o json"} {
				var out, errs bytes.Buffer
				ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
				args := append(strings.Fields("--master "+master+" "+format), strings.Fields(line)...)
				if first := strings.Index(line, " -- "); first >= 0 {
					args = append(strings.Fields(line[:first]+" --master "+master), strings.Fields(line[first:])...)
				}
				run(ctx, args, stdio{strings.NewReader(""), &out, &errs})
				stop()
				if what := harmful(out.String()); what != "" {
					t.Errorf("%v prints %s", args, what)
				}
				if what := harmful(errs.String()); what != "" {
					t.Errorf("%v says %s", args, what)
				}
				if out.Len()+errs.Len() == 0 {
					t.Errorf("%v prints nothing", args)
				}
			}
		})
	}
}

// TestHostileJSON: JSON escapes what a terminal would act on, and says the same.
func TestHostileJSON(t *testing.T) {
	t.Parallel()
	const text = hostile + "\U000e0001ä世"
	var b bytes.Buffer
	if err := printJSON(&b, map[string]string{text: text}); err != nil {
		t.Fatal(err)
	}
	var back map[string]string
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || back[text] != text {
		t.Errorf("%v, %q", err, back)
	}
	if what := harmful(b.String()); what != "" {
		t.Errorf("%s", what)
	}
	if !strings.Contains(b.String(), "ä世") {
		t.Errorf("what can be printed is escaped: %s", &b)
	}
}

// TestHostileRows: rows of a table and diagnostics for people have nothing of it either.
func TestHostileRows(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := table(&b, [][]string{{"HEAD", "\xff" + hostile}, {hostile, "x"}}); err != nil {
		t.Fatal(err)
	}
	d := schema.Diagnostic{Position: schema.Position{Path: hostile, Line: 1, Column: 2}, Field: hostile, Message: hostile, Expected: hostile, Hint: hostile}
	printDiagnostics(&b, screen.Painter(false), []schema.Diagnostic{d}, map[string]schema.File{hostile: {Data: []byte("x\x1b[2J\t\xffy\n")}})
	printDiff(&b, false, "+a\x1b[2J\n-b\r\n")
	if what := harmful(b.String()); what != "" {
		t.Errorf("%s", what)
	}
	if !strings.Contains(b.String(), `\xff`) {
		t.Errorf("no %q in %s", `\xff`, &b)
	}
}

// TestPrinted: what is printed for people goes through screen.Printf and its like, which alone
// make arguments harmless.
func TestPrinted(t *testing.T) {
	t.Parallel()
	may := map[string]string{
		"serve.go":     "what a task of the demo answers and logs",
		"validated.go": "what is hashed",
	}
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	fset := token.NewFileSet()
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") || may[name] != "" {
			continue
		}
		file, err := parser.ParseFile(fset, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if pkg, ok := call.X.(*ast.Ident); ok && pkg.Name == "fmt" && (strings.HasPrefix(call.Sel.Name, "Fprint") || strings.HasPrefix(call.Sel.Name, "Print")) {
				t.Errorf("%s: fmt.%s prints arguments as they are: use screen.Printf or screen.Fprintf", fset.Position(call.Pos()), call.Sel.Name)
			}
			return true
		})
	}
}
