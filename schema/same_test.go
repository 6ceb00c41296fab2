package schema_test

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
)

// TestSame holds that two statuses are the same if all that they say is, field by field.
func TestSame(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	full := func() *schema.TaskStatus {
		s := new(schema.TaskStatus)
		fill(t, reflect.ValueOf(s).Elem(), at)
		return s
	}
	if a, b := full(), full(); !a.Same(b) || !new(schema.TaskStatus).Same(new(schema.TaskStatus)) {
		t.Error("two copies are not the same")
	}
	b := full()
	b.StartedAt = b.StartedAt.In(time.FixedZone("", 3600))
	if !full().Same(b) {
		t.Error("the zone of a time is said to matter")
	}
	differs(t, "", reflect.TypeFor[schema.TaskStatus](), func(change func(reflect.Value)) bool {
		s := full()
		change(reflect.ValueOf(s).Elem())
		return s.Same(full()) || full().Same(s)
	})
}

// differs holds that a change of each field, however deep, is seen: same makes one, given how.
func differs(t *testing.T, path string, of reflect.Type, same func(change func(reflect.Value)) bool) {
	t.Helper()
	for i := range of.NumField() {
		field := of.Field(i)
		name := path + "." + field.Name
		inner := field.Type
		if inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		if same(func(v reflect.Value) { v.Field(i).SetZero() }) {
			t.Errorf("%s is not looked at", name)
		}
		if inner.Kind() == reflect.Struct && inner != reflect.TypeFor[time.Time]() && inner != reflect.TypeFor[netip.Addr]() {
			differs(t, name, inner, func(change func(reflect.Value)) bool {
				return same(func(v reflect.Value) {
					f := v.Field(i)
					switch f.Kind() {
					case reflect.Pointer:
						f = f.Elem()
					case reflect.Slice:
						f = f.Index(0)
					default:
					}
					change(f)
				})
			})
		}
	}
}

// fill gives each field a value that is not its zero.
func fill(t *testing.T, v reflect.Value, at time.Time) {
	t.Helper()
	switch v.Kind() {
	case reflect.Struct:
		switch v.Type() {
		case reflect.TypeFor[time.Time]():
			v.Set(reflect.ValueOf(at))
			return
		case reflect.TypeFor[netip.Addr]():
			v.Set(reflect.ValueOf(netip.MustParseAddr("10.64.0.2")))
			return
		}
		for i := range v.NumField() {
			fill(t, v.Field(i), at)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), at)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(t, v.Index(0), at)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint64:
		v.SetUint(1)
	default:
		t.Fatalf("a field of %s: say how to fill it", v.Type())
	}
}
