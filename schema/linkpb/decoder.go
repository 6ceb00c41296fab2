package linkpb

import (
	"hash/maphash"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/musterhq/muster/schema"
)

// Decoder decodes the reports of one machine, one after the other. Most of a report is as it
// was in the one before: what has the same bytes is taken from there, and not decoded again.
// The zero value is of a machine that has not reported. It belongs to one goroutine at a time.
type Decoder struct {
	machine uint64   // hash of what the last report says of the machine; 0: not known
	tasks   []uint64 // hashes of its tasks
}

// The numbers of the fields of a ReportBody that are mostly the same again.
const (
	machineField = 1
	tasksField   = 4
)

// ahead is how many tasks that are gone from a report are looked past for one that it has.
const ahead = 8

// hashSeed is of this process: what two reports have in common is its own business.
var hashSeed = maphash.MakeSeed()

// Decode is DecodeReport of the report that follows last, which the call before has returned;
// what it refers to may have been exchanged for what is equal.
func (d *Decoder) Decode(m *Report, last *schema.Report) (schema.Report, error) {
	parts, ok := split(m.GetBody())
	if !ok || !sameDigest(m) { // rare: for the error, or what takes a whole message to read
		*d = Decoder{}
		return DecodeReport(m)
	}
	was := *d
	*d = Decoder{} // unless all goes well
	var b ReportBody
	if err := Unmarshal(parts.rest, &b); err != nil {
		return DecodeReport(m)
	}
	machine, hash := last.Machine, maphash.Bytes(hashSeed, parts.machine)
	if hash != was.machine {
		var err error
		if machine, err = decodeMachine(parts.machine); err != nil {
			return DecodeReport(m)
		}
	}
	r, err := decodeBody(machine, &b)
	if err != nil {
		return schema.Report{}, err
	}
	hashes := make([]uint64, 0, len(parts.tasks))
	r.Tasks = slices.Grow(r.Tasks, len(parts.tasks)) // exactly: it is kept
	next, missed := 0, 0                             // tasks of last: the first that may follow, and how many of r it has not since
	for _, bytes := range parts.tasks {
		h := maphash.Bytes(hashSeed, bytes)
		hashes = append(hashes, h)
		until := min(len(was.tasks), next+missed+ahead)
		if at := slices.Index(was.tasks[next:until], h); at >= 0 {
			r.Tasks = append(r.Tasks, last.Tasks[next+at])
			next, missed = next+at+1, 0
			continue
		}
		missed++
		var p TaskStatus
		if err := Unmarshal(bytes, &p); err != nil {
			return DecodeReport(m)
		}
		t, err := decodeTask(&p)
		if err != nil {
			return DecodeReport(m)
		}
		r.Tasks = append(r.Tasks, t)
	}
	d.machine, d.tasks = hash, hashes
	return r, nil
}

func decodeMachine(bytes []byte) (schema.MachineInfo, error) {
	var m MachineInfo
	if err := Unmarshal(bytes, &m); err != nil {
		return schema.MachineInfo{}, err
	}
	return DecodeMachine(&m)
}

// bodyParts are the parts of an encoded ReportBody.
type bodyParts struct {
	machine []byte
	tasks   [][]byte
	rest    []byte // all other fields
}

// split takes an encoded ReportBody apart. It is not ok if that is none, or has no machine or
// several, or more tasks than are taken.
func split(body []byte) (out bodyParts, ok bool) {
	for len(body) > 0 {
		number, kind, tag := protowire.ConsumeTag(body)
		if tag < 0 {
			return out, false
		}
		size := protowire.ConsumeFieldValue(number, kind, body[tag:])
		if size < 0 {
			return out, false
		}
		switch {
		case kind == protowire.BytesType && number == tasksField:
			if len(out.tasks) == maxTasks {
				return out, false
			}
			task, _ := protowire.ConsumeBytes(body[tag:])
			out.tasks = append(out.tasks, task)
		case kind == protowire.BytesType && number == machineField:
			if out.machine != nil {
				return out, false
			}
			out.machine, _ = protowire.ConsumeBytes(body[tag:])
		default:
			out.rest = append(out.rest, body[:tag+size]...)
		}
		body = body[tag+size:]
	}
	return out, out.machine != nil
}
