package sim

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// sizes counts what can be reached from a value, by the path of fields to it: entries of
// maps and elements of slices, all of one path together.
type sizes struct {
	of   map[string]int
	seen map[uintptr]bool
}

func sizesOf(v any) map[string]int {
	s := sizes{map[string]int{}, map[uintptr]bool{}}
	s.walk("", reflect.ValueOf(v))
	return s.of
}

func (s *sizes) walk(path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() || s.seen[v.Pointer()] {
			return
		}
		s.seen[v.Pointer()] = true
		s.walk(path, v.Elem())
	case reflect.Interface:
		s.walk(path, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			s.walk(path+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Map:
		s.of[path] += v.Len()
		for it := v.MapRange(); it.Next(); {
			s.walk(path+"[]", it.Value())
		}
	case reflect.Slice:
		s.of[path] += v.Len()
		fallthrough
	case reflect.Array:
		if k := v.Type().Elem().Kind(); k == reflect.Uint8 || k == reflect.Int32 {
			return
		}
		for i := range v.Len() {
			s.walk(path+"[]", v.Index(i))
		}
	default:
	}
}

// bounded says what may grow up to some size, whatever comes and goes: what has changed, for
// those that look seldom, and the snapshot, which is made anew when most of it is of what
// has gone, as TestWorn of reconciler/control/snapshot shows.
func bounded(path string) bool {
	return strings.HasSuffix(path, ".names") || strings.HasPrefix(path, ".memo.cell.snapshot.") || strings.HasPrefix(path, ".memo.cell.asks")
}

// TestNothingGrows has jobs come and go whose names do not come again, and
// wants what a master keeps of them to be as much as at first.
func TestNothingGrows(t *testing.T) {
	t.Parallel()
	w := New(Config{Seed: 1, Machines: 4})
	root := Root(100, "a")
	var before map[string]int
	const rounds, half, jobs = 60, 20, 5
	for round := range rounds {
		var list []schema.Job
		for i := range jobs {
			j := Service(fmt.Sprintf("j%d", round*jobs+i), 2, "v1")
			j.Labels = map[string]string{"app": j.Name}
			if i == 0 {
				j = Batch(j.Name, 2)
			}
			list = append(list, j)
		}
		w.Commit(map[string]*schema.Package{".": root, "teams/a": Team("a", list...)})
		if err := w.pass(10 * time.Second); err != nil {
			t.Fatal(err)
		}
		if round%half == half-1 { // machines report for so long what has ended
			if err := w.pass(nodeagent.ReportFor + time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		if round == half-1 {
			before = sizesOf(w.master.Master)
		}
	}
	after := sizesOf(w.master.Master)
	if len(before) < 50 {
		t.Fatalf("only %d things are counted", len(before))
	}
	for _, path := range sortedKeys(after) {
		grown := after[path] - before[path]
		if grown >= rounds-half && !bounded(path) {
			t.Errorf("%s had %d, and has %d after %d jobs more have come and gone", path, before[path], after[path], (rounds-half)*jobs)
		}
	}
}
