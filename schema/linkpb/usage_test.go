package linkpb

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/schema"
)

func drawUsage(t *rapid.T) schema.MachineUsage {
	amount := func(label string) int64 { return rapid.Int64Min(0).Draw(t, label) }
	u := schema.MachineUsage{
		Machine: "m1", At: drawTime(t), CPUMilli: amount("cpu"), RAMTotal: amount("ram"), RAMAvailable: amount("available"),
		DiskTotal: amount("disk"), DiskFree: amount("free"), Tasks: []schema.TaskUsage{},
	}
	for range rapid.IntRange(0, 3).Draw(t, "tasks") {
		u.Tasks = append(u.Tasks, schema.TaskUsage{
			Task: drawTask(t), Generation: rapid.Uint64().Draw(t, "generation"), Incarnation: rapid.IntRange(0, 1000).Draw(t, "incarnation"),
			Usage: schema.Usage{
				At: drawTime(t), CPUMilli: amount("cpu"), RAMBytes: amount("ram"), CacheBytes: amount("cache"),
				DiskBytes: amount("disk"), DiskAt: drawTime(t), DiskNote: drawText(t, "disk note"), Processes: amount("processes"),
				ThrottledMilli: amount("throttled"), DelayMilli: amount("delay"), OOMKills: amount("oom"), Note: drawText(t, "note"),
			},
		})
	}
	return u
}

func TestUsageRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		u := drawUsage(t)
		b, err := proto.Marshal(EncodeUsage(&u))
		if err != nil {
			t.Fatal(err)
		}
		var m MachineUsage
		if err := proto.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		got, err := DecodeUsage("m1", &m)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(u, got); diff != "" {
			t.Fatalf("usage after the link (-sent +received):\n%s", diff)
		}
	})
}

func TestDecodeUsageRefuses(t *testing.T) {
	t.Parallel()
	for want, m := range map[string]*MachineUsage{
		"usage of machine m1: amount -1":               {RamAvailable: -1},
		"usage of machine m1: task c/u/j/0: amount -5": {Tasks: []*TaskUsage{{Task: "c/u/j/0", DiskBytes: -5}}},
		"want cell/user/job/index":                     {Tasks: []*TaskUsage{{Task: "../../etc"}}},
	} {
		if _, err := DecodeUsage("m1", m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v: want %q", err, want)
		}
	}
}
