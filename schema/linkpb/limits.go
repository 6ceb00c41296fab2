package linkpb

import (
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/musterhq/muster/schema"
)

// MaxText is how much of each text that an agent reports is taken, in bytes: it stays in the master's
// memory, and causes are also stored with their jobs and in events.
const MaxText = 1024

// The longest names that an agent may give of something, in bytes. A longer one is refused: its
// beginning could be the name of something else.
const (
	maxWord = 256
	// maxReference is that of an image or a package (a path has at most 4,096 bytes, beside which its
	// digest stands), and of a recipient of age, which has 2,000 where it withstands quantum computers.
	maxReference = 4096 + 256
)

// maxTasks is how many tasks a machine may report: with what an agent says of each, not many more are in
// a message of MaxMessage.
const maxTasks = 1 << 15

// listLimits are how many elements of each list are taken, of those in messages of agents, by the field.
// docs/reference/limits.md has the reason of each.
var listLimits = map[protoreflect.FullName]int{
	"muster.link.v1.MachineInfo.attributes": 1024,
	"muster.link.v1.MachineInfo.notes":      256,
	"muster.link.v1.MachineInfo.devices":    schema.MaxDeviceGroups,
	"muster.link.v1.DeviceGroup.attributes": schema.MaxDeviceAttributes,
	"muster.link.v1.ReportBody.busy_ports":  1 << 16,
	"muster.link.v1.ReportBody.tasks":       maxTasks,
	"muster.link.v1.ReportBody.conditions":  32,
	"muster.link.v1.Overload.relief":        64,
	"muster.link.v1.TaskStatus.ports":       128,
	"muster.link.v1.TaskStatus.exits":       16,
	"muster.link.v1.TaskStatus.devices":     4096,
	"muster.link.v1.TaskStatus.brought":     256,
	"muster.link.v1.TaskStatus.addresses":   schema.MaxTaskAddresses,
	"muster.link.v1.MachineUsage.tasks":     maxTasks,
	"muster.link.v1.ContentChange.added":    schema.MaxContent,
	"muster.link.v1.ContentChange.removed":  schema.MaxContent,
	"muster.link.v1.SourcesRequest.without": schema.MaxWithout,
	"muster.link.v1.SourcesRequest.fetches": schema.MaxFetches,
	"muster.link.v1.SourcesRequest.have":    schema.MaxFetches,
}

// Unmarshal decodes a message of an agent. It errs when a list in it has more elements than are taken,
// before there is room for any: an element of two bytes can take hundreds once it is decoded.
func Unmarshal(b []byte, m proto.Message) error {
	if err := checkLists(m.ProtoReflect().Descriptor(), b); err != nil {
		return err
	}
	return proto.Unmarshal(b, m)
}

// checkLists errs when a list in an encoded message, or in one inside, is too long. What is no message
// is left to be found when it is decoded.
func checkLists(d protoreflect.MessageDescriptor, b []byte) error {
	var has map[protowire.Number]int // elements of the lists so far
	for len(b) > 0 {
		number, kind, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return nil
		}
		size := protowire.ConsumeFieldValue(number, kind, b[tag:])
		if size < 0 {
			return nil
		}
		value := b[tag : tag+size]
		b = b[tag+size:]
		f := d.Fields().ByNumber(number)
		if f == nil {
			continue // of a later release: it is not decoded
		}
		if f.Cardinality() == protoreflect.Repeated {
			if has == nil {
				has = map[protowire.Number]int{}
			}
			has[number] += elements(f, kind, value)
			if most := listLimits[f.FullName()]; has[number] > most {
				return fmt.Errorf("%s.%s: more than %d elements: no more are taken", d.Name(), f.Name(), most)
			}
		}
		if inside, n := protowire.ConsumeBytes(value); kind == protowire.BytesType && f.Message() != nil && n >= 0 {
			if err := checkLists(f.Message(), inside); err != nil {
				return err
			}
		}
	}
	return nil
}

// elements counts those of a list in one of its fields: one, or several numbers that are packed.
func elements(f protoreflect.FieldDescriptor, kind protowire.Type, value []byte) int {
	if kind != protowire.BytesType || !f.IsPacked() {
		return 1
	}
	packed, _ := protowire.ConsumeBytes(value)
	n := 0
	for _, b := range packed {
		if b < 0x80 { // the last byte of a number
			n++
		}
	}
	return n
}

// CheckHello errs when what a Hello says beside the machine is too long.
func CheckHello(m *Hello) error {
	return checkNames(named{"cell", m.GetCell()}, named{"life", m.GetLife()})
}

// Text returns the beginning of a text, of at most MaxText bytes with the … that stands for the rest.
func Text(s string) string {
	if len(s) <= MaxText {
		return s
	}
	const more = "…"
	end := MaxText - len(more)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + more
}

// named is a name that an agent gives, and what of.
type named struct{ what, name string }

// checkNames errs when one of the names is too long.
func checkNames(names ...named) error {
	for _, n := range names {
		if len(n.name) > maxWord {
			return fmt.Errorf("%s has %d bytes: want at most %d", n.what, len(n.name), maxWord)
		}
	}
	return nil
}

// checkReferences errs when one of the references is too long.
func checkReferences(what string, all ...string) error {
	for _, r := range all {
		if len(r) > maxReference {
			return fmt.Errorf("%s has %d bytes: want at most %d", what, len(r), maxReference)
		}
	}
	return nil
}
