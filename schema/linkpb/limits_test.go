package linkpb

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/musterhq/muster/schema"
)

// ofAgents are the messages that a master takes from agents.
var ofAgents = []proto.Message{&AgentMessage{}, &ReportBody{}, &SourcesRequest{}, &CertifyRequest{}, &LogChunk{}, &ExecChunk{}}

// TestListLimits: each list that agents send has a limit of its own, which the documentation has, too.
// As many elements as that are taken, and not one more.
func TestListLimits(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	lists := map[protoreflect.FullName]protoreflect.FieldDescriptor{}
	for _, m := range ofAgents {
		addLists(lists, m.ProtoReflect().Descriptor())
	}
	for name := range listLimits {
		if lists[name] == nil {
			t.Errorf("%s has a limit, and is in no message of agents", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		f, most := lists[name], listLimits[name]
		short := strings.TrimPrefix(string(name), "muster.link.v1.")
		if most == 0 || !bytes.Contains(page, fmt.Appendf(nil, "| `%s` | %d |", short, most)) {
			t.Errorf("%s: limit %d, which is 0 or not in docs/reference/limits.md", name, most)
		}
		for _, packed := range []bool{false, true} {
			for _, n := range []int{most, most + 1} {
				err := checkLists(f.ContainingMessage(), encodedList(f, n, packed))
				if (err == nil) != (n == most) || err != nil && !strings.Contains(err.Error(), fmt.Sprintf("%s: more than %d elements", short, most)) {
					t.Errorf("%s: %d elements, packed %t: %v", name, n, packed, err)
				}
			}
		}
	}
}

// addLists adds the lists of a message, and of those inside.
func addLists(lists map[protoreflect.FullName]protoreflect.FieldDescriptor, d protoreflect.MessageDescriptor) {
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if f.Cardinality() == protoreflect.Repeated {
			lists[f.FullName()] = f
		}
		if f.Message() != nil && !f.IsMap() {
			addLists(lists, f.Message())
		}
	}
}

// encodedList returns a message with so many elements in one list, of numbers packed or not.
func encodedList(f protoreflect.FieldDescriptor, n int, packed bool) []byte {
	var b []byte
	numbers := f.Kind() == protoreflect.Uint32Kind
	for range n {
		switch {
		case numbers && packed:
			b = append(b, 0x81, 0x01) // two bytes
		case numbers:
			b = protowire.AppendVarint(protowire.AppendTag(b, f.Number(), protowire.VarintType), 129)
		default:
			b = protowire.AppendBytes(protowire.AppendTag(b, f.Number(), protowire.BytesType), nil)
		}
	}
	if numbers && packed {
		return protowire.AppendBytes(protowire.AppendTag(nil, f.Number(), protowire.BytesType), b)
	}
	return b
}

// valid are words of fields that take no others, by the field's name.
var valid = map[protoreflect.Name]string{
	"name": "m1", "task": "c/u/j/0", "suffers": "c/u/j/0", "state": string(schema.Running), "kind": "gpu", "addresses": "10.64.0.2", "address": "10.1.2.3",
}

// filled sets each field of a message, and of those inside, to what is valid.
func filled(m protoreflect.Message) protoreflect.Message {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.IsMap():
			value := protoreflect.ValueOfString("1")
			if f.MapValue().Kind() != protoreflect.StringKind {
				value = protoreflect.ValueOfUint32(1)
			}
			m.Mutable(f).Map().Set(protoreflect.ValueOfString("key").MapKey(), value)
		case f.IsList() && f.Message() != nil:
			filled(m.Mutable(f).List().AppendMutable().Message())
		case f.IsList():
			m.Mutable(f).List().Append(scalar(f))
		case f.Message() != nil:
			filled(m.Mutable(f).Message())
		default:
			m.Set(f, scalar(f))
		}
	}
	return m
}

func scalar(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		if v, ok := valid[f.Name()]; ok {
			return protoreflect.ValueOfString(v)
		}
		return protoreflect.ValueOfString("x")
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte("x"))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(1)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(1)
	}
	return protoreflect.ValueOfUint64(1)
}

// place is one text in a message: setting it to another, and which field it is.
type place struct {
	of  protoreflect.FullName
	set func(string)
}

// places returns where texts are in a message that is filled.
func places(m protoreflect.Message) (out []place) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		text := f.Kind() == protoreflect.StringKind
		switch {
		case f.IsMap():
			var value protoreflect.Value
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool { value = v; return false })
			out = append(out, place{f.MapKey().FullName(), func(s string) { v.Map().Set(protoreflect.ValueOfString(s).MapKey(), value) }})
			if f.MapValue().Kind() == protoreflect.StringKind {
				out = append(out, place{f.MapValue().FullName(), func(s string) {
					v.Map().Set(protoreflect.ValueOfString("key").MapKey(), protoreflect.ValueOfString(s))
				}})
			}
		case f.IsList() && text:
			out = append(out, place{f.FullName(), func(s string) { v.List().Set(0, protoreflect.ValueOfString(s)) }})
		case f.IsList() && f.Message() != nil:
			out = append(out, places(v.List().Get(0).Message())...)
		case text:
			out = append(out, place{f.FullName(), func(s string) { m.Set(f, protoreflect.ValueOfString(s)) }})
		case f.Message() != nil:
			out = append(out, places(v.Message())...)
		}
		return true
	})
	return out
}

// swollen is a report that is long wherever that is taken.
func swollen() protoreflect.Message {
	m := filled((&ReportBody{}).ProtoReflect())
	for _, p := range places(m) {
		if f := p.of.Name(); f == "note" || f == "notes" || f == "message" || f == "health_message" || f == "line" || f == "agent_version" {
			p.set(strings.Repeat("é", 5000))
		}
	}
	return m
}

// longest returns the length of the longest string in a value.
func longest(v reflect.Value) (most int) {
	switch v.Kind() {
	case reflect.String:
		return v.Len()
	case reflect.Pointer:
		if !v.IsNil() {
			return longest(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				most = max(most, longest(v.Field(i)))
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			most = max(most, longest(v.Index(i)))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			most = max(most, longest(key), longest(v.MapIndex(key)))
		}
	}
	return most
}

// TestTextsAreBounded makes one text after the other of a report and of a sample of usage longer than what
// is taken: it is cut, or all of it is refused, with an error that names what is too long.
func TestTextsAreBounded(t *testing.T) {
	t.Parallel()
	decodeReport := func(m proto.Message) (any, error) {
		body, err := proto.Marshal(m)
		if err != nil {
			return nil, err
		}
		return DecodeReport(&Report{Digest: digest(body), Body: body})
	}
	decodeUsage := func(m proto.Message) (any, error) { return DecodeUsage("m1", m.(*MachineUsage)) }
	cut, refused := 0, 0
	for _, tc := range []struct {
		m      proto.Message
		decode func(proto.Message) (any, error)
	}{{&ReportBody{}, decodeReport}, {&MachineUsage{}, decodeUsage}} {
		filled(tc.m.ProtoReflect())
		if _, err := tc.decode(tc.m); err != nil {
			t.Fatal("before one is long:", err)
		}
		for i, p := range places(tc.m.ProtoReflect()) {
			long := proto.Clone(tc.m)
			places(long.ProtoReflect())[i].set(strings.Repeat("é", 5000))
			got, err := tc.decode(long)
			switch n := longest(reflect.ValueOf(got)); {
			case err != nil:
				refused++
			case n > MaxText || n < MaxText-utf8.UTFMax:
				t.Errorf("%s: a text of %d bytes is taken", p.of, n)
			default:
				cut++
			}
		}
	}
	if cut < 10 || refused < 10 {
		t.Errorf("%d texts were cut, and for %d all was refused", cut, refused)
	}
}

// TestText: what is cut is cut between runes, once: who takes it from another master takes all of it.
func TestText(t *testing.T) {
	t.Parallel()
	for _, said := range []string{"", "short", strings.Repeat("a", MaxText), strings.Repeat("b", MaxText+1), "x" + strings.Repeat("é", MaxText), strings.Repeat("€", MaxText), strings.Repeat("😀", MaxText)} {
		got := Text(said)
		begin, cut := strings.CutSuffix(got, "…")
		if !utf8.ValidString(got) || len(got) > MaxText || !strings.HasPrefix(said, begin) || cut != (len(said) > MaxText) || cut && len(got) <= MaxText-utf8.UTFMax || Text(got) != got {
			t.Errorf("of %d bytes %d are taken: %.20q…", len(said), len(got), got)
		}
	}
}

// TestHostileReports: what would take many times the memory of the message is refused before it is decoded.
func TestHostileReports(t *testing.T) {
	t.Parallel()
	machine := []byte("\x0a\x04\x0a\x02m1")
	many := func(field ...byte) []byte { return bytes.Repeat(field, MaxMessage/2/len(field)) }
	for want, body := range map[string][]byte{
		"ReportBody.tasks: more than 32768":    append(many(0x22, 0), machine...),
		"ReportBody.conditions: more than 32":  append(many(0xf2, 0x06, 0), machine...),
		"MachineInfo.notes: more than 256":     protowire.AppendBytes([]byte{0x0a}, many(0x32, 0)),
		"Overload.relief: more than 64":        append(protowire.AppendBytes([]byte{0xb2, 0x04}, many(0x1a, 0)), machine...),
		"TaskStatus.exits: more than 16":       append(protowire.AppendBytes([]byte{0x22}, append([]byte("\x0a\x07c/u/j/0"), many(0x4a, 0)...)), machine...),
		"ReportBody.busy_ports: more than 655": append(protowire.AppendBytes([]byte{0x1a}, many(1)), machine...),
	} {
		m := &Report{Digest: digest(body), Body: body}
		if _, err := new(Decoder).Decode(m, &schema.Report{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
