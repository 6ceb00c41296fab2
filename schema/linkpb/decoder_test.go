package linkpb

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/schema"
)

// TestDecoder: reports that have parts in common with those before are decoded as if each were
// the first.
func TestDecoder(t *testing.T) {
	t.Parallel()
	reused := false
	rapid.Check(t, func(t *rapid.T) {
		var d Decoder
		var last, before schema.Report
		for range rapid.IntRange(1, 5).Draw(t, "reports") {
			next := drawReport(t)
			if rapid.Bool().Draw(t, "same machine") {
				next.Machine = before.Machine
			}
			for i := range before.Tasks {
				if rapid.Bool().Draw(t, "stays") {
					at := rapid.IntRange(0, len(next.Tasks)).Draw(t, "at")
					next.Tasks = append(next.Tasks[:at:at], append([]schema.TaskStatus{before.Tasks[i]}, next.Tasks[at:]...)...)
				}
			}
			if next.Machine.Name == "" { // of the first
				next.Machine = drawReport(t).Machine
			}
			body, digest, err := EncodeReport(&next)
			if err != nil {
				t.Fatal(err)
			}
			m := &Report{Digest: digest, Body: body}
			want, err := DecodeReport(m)
			if err != nil {
				t.Fatal(err)
			}
			got, err := d.Decode(m, &last)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Fatal(diff)
			}
			if len(d.tasks) != len(got.Tasks) {
				t.Fatalf("knows %d tasks, want %d", len(d.tasks), len(got.Tasks))
			}
			for i := range got.Tasks {
				for j := range last.Tasks {
					a, b := got.Tasks[i].Exits, last.Tasks[j].Exits
					reused = reused || len(a) > 0 && len(b) > 0 && &a[0] == &b[0]
				}
			}
			last, before = got, next
		}
	})
	if !reused {
		t.Error("nothing of a report was in the one before")
	}
}

// TestDecoderErrors: what is no report is refused as DecodeReport does, and nothing is taken
// from the report before after that.
func TestDecoderErrors(t *testing.T) {
	t.Parallel()
	good := schema.Report{Machine: schema.MachineInfo{Name: "m1"}, Tasks: []schema.TaskStatus{{Task: schema.JobName{Cell: "c", User: "u", Job: "j"}.Task(1), State: schema.Running}}}
	body, sum, err := EncodeReport(&good)
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]*Report{
		"digest":           {Digest: []byte("x"), Body: body},
		"garbage":          {Digest: digest([]byte("x")), Body: []byte("x")},
		"no machine":       {Digest: digest(nil)},
		"a broken task":    {Digest: digest(append(body[:len(body):len(body)], 0x22, 1, 0xff)), Body: append(body[:len(body):len(body)], 0x22, 1, 0xff)},
		"a broken machine": {Digest: digest([]byte{0x0a, 1, 0xff}), Body: []byte{0x0a, 1, 0xff}},
		"a broken rest":    {Digest: digest(append(body[:len(body):len(body)], 0xb2, 4, 1, 0xff)), Body: append(body[:len(body):len(body)], 0xb2, 4, 1, 0xff)},
	} {
		var d Decoder
		last, err := d.Decode(&Report{Digest: sum, Body: body}, &schema.Report{})
		if err != nil {
			t.Fatal(err)
		}
		_, want := DecodeReport(bad)
		if _, got := d.Decode(bad, &last); want == nil || got == nil || got.Error() != want.Error() {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		if len(d.tasks) > 0 || d.machine != 0 {
			t.Errorf("%s: the tasks of the report before are known", name)
		}
	}
}
