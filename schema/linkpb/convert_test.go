package linkpb

import (
	"bytes"
	"crypto/sha256"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/schema"
)

// A generator of rapid is not for two goroutines, so each draw has its own.

func drawName(t *rapid.T, label string) string {
	return names().Draw(t, label)
}

func drawText(t *rapid.T, label string) string { return rapid.String().Draw(t, label) }

func names() *rapid.Generator[string] {
	return rapid.StringMatching(`[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?`)
}

func drawPorts(t *rapid.T) schema.Ports {
	return schema.PortsOf(drawMap(t, rapid.MapOf(names(), rapid.IntRange(1, 65535)), "ports"))
}

func drawTime(t *rapid.T) time.Time {
	if rapid.Bool().Draw(t, "zero") {
		return time.Time{}
	}
	return time.Unix(rapid.Int64Range(0, 1<<34).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")).UTC()
}

func drawTask(t *rapid.T) schema.TaskName {
	n := schema.JobName{Cell: drawName(t, "cell"), User: drawName(t, "user"), Job: drawName(t, "job")}
	return n.Task(rapid.IntRange(0, schema.MaxTasks).Draw(t, "index"))
}

// drawMap leaves out an empty map: absent and empty are one thing on the wire.
func drawMap[V any](t *rapid.T, g *rapid.Generator[map[string]V], label string) map[string]V {
	m := g.Draw(t, label)
	if len(m) == 0 {
		return nil
	}
	return m
}

func drawExit(t *rapid.T) schema.Exit {
	return schema.Exit{
		Incarnation: rapid.IntRange(0, 1000).Draw(t, "incarnation"), Code: rapid.IntRange(-1, 255).Draw(t, "code"),
		Signal: drawText(t, "signal"), OOM: rapid.Bool().Draw(t, "oom"), At: drawTime(t), Message: drawText(t, "message"),
		Blameless: rapid.Bool().Draw(t, "blameless"),
	}
}

func drawCause(t *rapid.T) *schema.Cause {
	if rapid.Bool().Draw(t, "no cause") {
		return nil
	}
	c := &schema.Cause{
		Kind: schema.CauseUpdate, Message: drawText(t, "message"), Machine: drawName(t, "machine"),
		Generation: rapid.Uint64().Draw(t, "generation"), At: drawTime(t), Resource: schema.Resource(drawText(t, "resource")),
	}
	if rapid.Bool().Draw(t, "has exit") {
		e := drawExit(t)
		c.Exit = &e
	}
	return c
}

func drawMachine(t *rapid.T) schema.MachineInfo {
	amount := rapid.Int64()
	i := schema.MachineInfo{
		Name: drawName(t, "name"), Boot: drawText(t, "boot"),
		Capacity:   schema.Resources{CPUMilli: amount.Draw(t, "cpu"), RAMBytes: amount.Draw(t, "ram"), DiskBytes: amount.Draw(t, "disk")},
		Reserved:   schema.Resources{CPUMilli: amount.Draw(t, "kept"), RAMBytes: amount.Draw(t, "kept")},
		Ports:      schema.PortRange{First: rapid.IntRange(0, 65535).Draw(t, "first"), Last: rapid.IntRange(0, 65535).Draw(t, "last")},
		Attributes: drawMap(t, rapid.MapOf(rapid.String(), rapid.String()), "attributes"), AgentVersion: drawText(t, "version"), ID: drawText(t, "id"), Address: rapid.SampledFrom([]string{"", "10.1.2.3", "2001:db8::7"}).Draw(t, "address"),
	}
	for range rapid.IntRange(0, 2).Draw(t, "notes") {
		i.Notes = append(i.Notes, drawText(t, "note"))
	}
	for range rapid.IntRange(0, 2).Draw(t, "device groups") {
		i.Devices = append(i.Devices, schema.DeviceGroup{
			Kind: drawName(t, "kind"), Model: rapid.SampledFrom([]string{"", "T4"}).Draw(t, "model"), Count: rapid.IntRange(1, 8).Draw(t, "devices"),
			Attributes: drawMap(t, rapid.MapOf(rapid.SampledFrom([]string{"memory", "numa"}), rapid.SampledFrom([]string{"0", "80Gi"})), "device attributes"),
		})
	}
	return i
}

func drawReport(t *rapid.T) schema.Report {
	r := schema.Report{Machine: drawMachine(t), View: rapid.Uint64().Draw(t, "view")}
	for range rapid.IntRange(0, 2).Draw(t, "busy") {
		r.BusyPorts = append(r.BusyPorts, rapid.IntRange(1, 65535).Draw(t, "port"))
	}
	for range rapid.IntRange(0, 2).Draw(t, "conditions") {
		kind := rapid.SampledFrom(append(schema.ConditionKinds(), "of-a-later-version"))
		r.Conditions = append(r.Conditions, schema.Condition{Kind: kind.Draw(t, "kind"), Since: drawTime(t), Message: drawText(t, "message")})
	}
	states := []schema.TaskState{schema.Starting, schema.Running, schema.Waiting, schema.Stopping, schema.Dead}
	health := []schema.HealthState{"", schema.HealthUnknown, schema.Healthy, schema.Unhealthy}
	for range rapid.IntRange(0, 3).Draw(t, "tasks") {
		s := schema.TaskStatus{
			Task: drawTask(t), Generation: rapid.Uint64().Draw(t, "generation"), State: rapid.SampledFrom(states).Draw(t, "state"),
			Incarnation: rapid.IntRange(0, 1000).Draw(t, "incarnation"), PID: rapid.IntRange(0, 1<<22).Draw(t, "pid"),
			StartedAt: drawTime(t), Ports: drawPorts(t), Health: rapid.SampledFrom(health).Draw(t, "health"),
			End: drawCause(t), Note: drawText(t, "note"), HealthMessage: drawText(t, "saw"), Line: drawText(t, "line"),
			Withheld: rapid.Bool().Draw(t, "withheld"), Stuck: rapid.Bool().Draw(t, "stuck"), Checking: schema.Checking{Unchecked: rapid.Bool().Draw(t, "unchecked"), HealthyMillis: rapid.Int64Range(0, 1<<40).Draw(t, "took")},
			Failures: rapid.IntRange(0, 100).Draw(t, "failures"), RestartAt: drawTime(t),
			Data: schema.Digest(drawText(t, "data")),
		}
		s.Own = rapid.SampledFrom([]*schema.TaskNetwork{nil, {}, {Addresses: []netip.Addr{netip.MustParseAddr("10.64.0.2")}}, {Addresses: []netip.Addr{netip.MustParseAddr("10.64.0.3"), netip.MustParseAddr("fd00::3")}}}).Draw(t, "addresses")
		if rapid.Bool().Draw(t, "alloc") {
			s.Alloc = &schema.AllocUse{Set: drawText(t, "set"), Index: rapid.IntRange(0, 100).Draw(t, "alloc index"), Generation: rapid.Uint64().Draw(t, "alloc generation")}
		}
		for range rapid.IntRange(0, 2).Draw(t, "exits") {
			s.Exits = append(s.Exits, drawExit(t))
		}
		r.Tasks = append(r.Tasks, s)
	}
	if rapid.Bool().Draw(t, "overloaded") {
		r.Overload = &schema.Overload{Since: drawTime(t), Message: drawText(t, "overload")}
		if rapid.Bool().Draw(t, "suffers") {
			r.Overload.Suffers = drawTask(t)
		}
		for range rapid.IntRange(0, 2).Draw(t, "relief") {
			r.Overload.Relief = append(r.Overload.Relief, schema.TaskRef{Task: drawTask(t), Generation: rapid.Uint64().Draw(t, "generation")})
		}
	}
	return r
}

func TestReportRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := drawReport(t)
		body, digest, err := EncodeReport(&want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeReport(&Report{Digest: digest, Body: body})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Fatal(diff)
		}
		again, _, err := EncodeReport(&got)
		if err != nil || !bytes.Equal(again, body) {
			t.Fatalf("the encoding of the same report differs (%v)", err)
		}
	})
}

func TestViewRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		data := map[schema.Digest]*schema.Job{}
		want := schema.View{Epoch: 3, Version: 4, Assignments: []schema.Assignment{}}
		for range rapid.IntRange(0, 4).Draw(t, "assignments") {
			task := drawTask(t)
			job := &schema.Job{Cell: task.Cell, User: task.User, Name: task.Job, Tasks: rapid.IntRange(0, 9).Draw(t, "tasks")}
			digest := schema.DigestOf(job)
			m, err := EncodeJob(digest, job)
			if err != nil {
				t.Fatal(err)
			}
			if data[digest], err = DecodeJob(m); err != nil {
				t.Fatal(err)
			}
			want.Assignments = append(want.Assignments, schema.Assignment{
				Task: task, Generation: rapid.Uint64().Draw(t, "generation"), Data: digest, Job: job,
				Ports: drawPorts(t), Stop: drawCause(t), OwnNetwork: rapid.Bool().Draw(t, "own network"),
			})
		}
		if rapid.Bool().Draw(t, "registries") {
			want.Registries = []schema.Registry{{Name: "r.example", Mirrors: []string{"m.example"}, Logins: []schema.RegistryLogin{{User: "u", Secret: "u/pull", Sealed: &schema.SealedSecret{Version: "v", Age: "a"}}}}}
		}
		b, err := proto.Marshal(EncodeView(&want))
		if err != nil {
			t.Fatal(err)
		}
		var m View
		if err := proto.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		got, err := DecodeView(&m, data)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestLogRequestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := schema.LogRequest{
			Task: drawTask(t), Generation: rapid.Uint64().Draw(t, "generation"),
			Incarnation: rapid.IntRange(0, 99).Draw(t, "incarnation"),
			Stream:      rapid.SampledFrom([]schema.LogStream{schema.Stdout, schema.Stderr}).Draw(t, "stream"),
			Follow:      rapid.Bool().Draw(t, "follow"), Tail: rapid.IntRange(-1, 1<<20).Draw(t, "tail"),
		}
		got, err := DecodeLogRequest(EncodeLogRequest("id", &want))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestJobDataIsChecked(t *testing.T) {
	t.Parallel()
	job := &schema.Job{Cell: "c", User: "u", Name: "j", Tasks: 1}
	if _, err := EncodeJob("sha256:00", job); err == nil || !strings.Contains(err.Error(), "c/u/j") {
		t.Errorf("EncodeJob with another digest: %v", err)
	}
	m, err := EncodeJob(schema.DigestOf(job), job)
	if err != nil {
		t.Fatal(err)
	}
	m.Json[len(m.Json)-2] ^= 1
	if _, err := DecodeJob(m); err == nil || !strings.Contains(err.Error(), "digest") {
		t.Errorf("DecodeJob of altered data: %v", err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	job := &schema.Job{Cell: "c", User: "u", Name: "j"}
	data := map[schema.Digest]*schema.Job{"d": job}
	encode := func(b *ReportBody) error {
		body, err := proto.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		_, err = DecodeReport(&Report{Digest: digest(body), Body: body})
		return err
	}
	assign := func(a *Assignment) error {
		_, err := DecodeView(&View{Assignments: []*Assignment{a}}, data)
		return err
	}
	machine := &MachineInfo{Name: "m1"}
	task := func(s *TaskStatus) error { return encode(&ReportBody{Machine: machine, Tasks: []*TaskStatus{s}}) }
	badTime := &timestamppb.Timestamp{Nanos: -1}
	for _, tc := range []struct {
		name string
		err  error
		want string
	}{
		{"digest", second(DecodeReport(&Report{Digest: []byte("x"), Body: []byte{}})), "digest"},
		{"garbage", second(DecodeReport(&Report{Digest: digest([]byte("x")), Body: []byte("x")})), "report"},
		{"machine", encode(&ReportBody{Machine: &MachineInfo{Name: "M/1"}}), "M/1"},
		{"no machine", encode(&ReportBody{}), "empty name"},
		{"busy port", encode(&ReportBody{Machine: machine, BusyPorts: []uint32{70000}}), "70000"},
		{"port range", encode(&ReportBody{Machine: &MachineInfo{Name: "m1", Ports: &PortRange{Last: 70000}}}), "70000"},
		{"device", encode(&ReportBody{Machine: &MachineInfo{Name: "m1", Devices: []*DeviceGroup{{Kind: "gpu", Count: 1, Attributes: map[string]string{"memory": "much"}}}}}), `memory "much" of a gpu`},
		{"task name", task(&TaskStatus{Task: "c/u/j"}), "cell/user/job/index"},
		{"state", task(&TaskStatus{Task: "c/u/j/0", State: "idle"}), "idle"},
		{"time", task(&TaskStatus{Task: "c/u/j/0", State: "dead", StartedAt: badTime}), "started"},
		{"condition", encode(&ReportBody{Machine: machine, Conditions: []*Condition{{Kind: "On fire"}}}), "On fire"},
		{"condition's time", encode(&ReportBody{Machine: machine, Conditions: []*Condition{{Kind: "fire", Since: badTime}}}), "since"},
		{"end", task(&TaskStatus{Task: "c/u/j/0", State: "dead", End: &Cause{At: badTime}}), "cause"},
		{"exit", task(&TaskStatus{Task: "c/u/j/0", State: "dead", Exits: []*Exit{{At: badTime}}}), "exit"},
		{"task address", task(&TaskStatus{Task: "c/u/j/0", State: "dead", Addresses: []string{"127.0.0.1"}}), "127.0.0.1"},
		{"task addresses", task(&TaskStatus{Task: "c/u/j/0", State: "dead", Addresses: []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}}), "TaskStatus.addresses: more than 2 elements"},
		{"task port", task(&TaskStatus{Task: "c/u/j/0", State: "dead", Ports: map[string]uint32{"http": 65536}}), "http"},
		{"assigned name", assign(&Assignment{Task: "c/u//0", Data: "d"}), "c/u//0"},
		{"unsent data", assign(&Assignment{Task: "c/u/j/0", Data: "e"}), "not sent"},
		{"assigned port", assign(&Assignment{Task: "c/u/j/0", Data: "d", Ports: map[string]uint32{"http": 65536}}), "http"},
		{"stop", assign(&Assignment{Task: "c/u/j/0", Data: "d", Stop: &Cause{Exit: &Exit{At: badTime}}}), "exit"},
		{"log task", second(DecodeLogRequest(&OpenLogs{Task: "x"})), "task name"},
		{"log stream", second(DecodeLogRequest(&OpenLogs{Task: "c/u/j/0", Stream: "stdin"})), "stdin"},
	} {
		if tc.err == nil || !strings.Contains(tc.err.Error(), tc.want) {
			t.Errorf("%s: got %v, want an error with %q", tc.name, tc.err, tc.want)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func digest(body []byte) []byte {
	sum := sha256.Sum256(body)
	return sum[:]
}

// FuzzDecodeReport decodes what an agent may send: it never panics, what it takes is
// bounded, and what it takes it gives again.
func FuzzDecodeReport(f *testing.F) {
	body, _, err := EncodeReport(&schema.Report{
		Machine: schema.MachineInfo{Name: "m1", Attributes: map[string]string{"arch": "amd64"}},
		Tasks: []schema.TaskStatus{{
			Task: schema.JobName{Cell: "c", User: "u", Job: "j"}.Task(1), State: schema.Dead, Ports: schema.PortsOf(map[string]int{"http": 80}),
			End: &schema.Cause{Kind: schema.CauseFailed, Exit: &schema.Exit{Code: 1, At: time.Unix(1, 0)}},
		}},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	for _, hostile := range []protoreflect.Message{filled((&ReportBody{}).ProtoReflect()), swollen()} {
		b, err := proto.Marshal(hostile.Interface())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := DecodeReport(&Report{Digest: digest(body), Body: body})
		if err != nil {
			return
		}
		if n := longest(reflect.ValueOf(r)); n > maxReference {
			t.Fatalf("a text of %d bytes is taken", n)
		}
		again, sum, err := EncodeReport(&r)
		if err != nil {
			t.Fatal(err)
		}
		r2, err := DecodeReport(&Report{Digest: sum, Body: again})
		if diff := cmp.Diff(r, r2, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})); err != nil || diff != "" {
			t.Fatal(err, diff)
		}
	})
}
