package nodeagent_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

const mib = 1 << 20

func drawCandidates(t *rapid.T) []nodeagent.Candidate {
	var list []nodeagent.Candidate
	for i := range rapid.IntRange(0, 8).Draw(t, "tasks") {
		list = append(list, nodeagent.Candidate{
			TaskRef:  schema.TaskRef{Task: task("web", i), Generation: uint64(i + 1)},
			Priority: schema.Priority(rapid.SampledFrom([]int{0, 50, 100, 199, 200, 250, 300}).Draw(t, "priority")),
			Use:      rapid.Int64Range(0, 6).Draw(t, "use") * mib, Limit: rapid.Int64Range(0, 6).Draw(t, "limit") * mib,
			Leaving: rapid.IntRange(0, 4).Draw(t, "leaving") == 0,
		})
	}
	return list
}

// goesBefore is the rule as it is documented.
func goesBefore(a, b *nodeagent.Candidate) bool {
	over := func(c *nodeagent.Candidate) int64 {
		if c.Limit > 0 && c.Use > c.Limit {
			return c.Use - c.Limit
		}
		return 0
	}
	switch {
	case a.Priority.Prod() != b.Priority.Prod():
		return b.Priority.Prod()
	case over(a) != over(b):
		return over(a) > over(b)
	case a.Priority != b.Priority:
		return a.Priority < b.Priority
	case a.Use != b.Use:
		return a.Use > b.Use
	}
	return a.Compare(b.TaskRef) < 0
}

// slowVictims stops one task after the other, each time the one that goes before
// all others, until what remains fits.
func slowVictims(short, least int64, tasks []nodeagent.Candidate) []nodeagent.Candidate {
	left := slices.DeleteFunc(slices.Clone(tasks), func(c nodeagent.Candidate) bool {
		if c.Leaving {
			short -= c.Use
		}
		return c.Leaving || c.Use < least || c.Use == 0
	})
	out := []nodeagent.Candidate{}
	for short > 0 && len(left) > 0 {
		first := 0
		for i := range left {
			if goesBefore(&left[i], &left[first]) {
				first = i
			}
		}
		short -= left[first].Use
		out = append(out, left[first])
		left = slices.Delete(left, first, first+1)
	}
	return out
}

func TestVictimsAreThoseOfTheRule(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tasks := drawCandidates(t)
		short, least := rapid.Int64Range(-4, 30).Draw(t, "short")*mib, rapid.Int64Range(0, 2).Draw(t, "least")*mib
		before := slices.Clone(tasks)
		got := nodeagent.Victims(short, least, tasks)
		if diff := cmp.Diff(slowVictims(short, least, tasks), append([]nodeagent.Candidate{}, got...)); diff != "" {
			t.Fatalf("victims (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(before, tasks); diff != "" {
			t.Fatalf("the tasks were written to:\n%s", diff)
		}
		for _, v := range got {
			stays := slices.ContainsFunc(tasks, func(c nodeagent.Candidate) bool {
				return !c.Leaving && !c.Priority.Prod() && c.Use >= max(least, 1) && !slices.Contains(got, c)
			})
			if v.Priority.Prod() && stays {
				t.Fatalf("prod task %s goes while a task stays that is not", v.Task)
			}
		}
	})
}

// short is a machine with the given memory and disk left, of 1 GiB each; 100 MiB
// are to be left.
func short(ram, disk int64) (nodeagent.MachinePressure, nodeagent.Limits) {
	room := schema.MachineUsage{At: t0, RAMTotal: 1024 * mib, RAMAvailable: ram, DiskTotal: 1024 * mib, DiskFree: disk}
	return nodeagent.MachinePressure{Room: room, DiskShort: t0}, nodeagent.Limits{RAMBytes: 100 * mib, DiskBytes: 100 * mib}
}

// using is a generation that runs and uses memory and disk; its limits are 64 MiB.
func using(name string, generation uint64, priority schema.Priority, ram, disk int64) nodeagent.Held {
	a := assignment(name, 0, generation, schema.Service)
	job := *a.Job
	job.Priority = priority
	job.Task.Resources.Resources = schema.Resources{RAMBytes: 64 * mib, DiskBytes: 64 * mib}
	a.Job = &job
	c := running(1)
	c.Usage = &schema.Usage{At: t0, RAMBytes: ram, DiskBytes: disk, DiskAt: t0}
	return held(a, c)
}

func decideOn(pressure nodeagent.MachinePressure, limits nodeagent.Limits, all ...nodeagent.Held) nodeagent.Plan {
	v := &schema.View{Epoch: 1, Version: 1}
	for _, h := range all {
		if h.End == nil || h.Clearing {
			v.Assignments = append(v.Assignments, h.Assignment)
		}
	}
	return nodeagent.Decide(nodeagent.Input{Machine: "m1", Boot: "boot-1", Now: t0, View: v, Held: all, Pressure: pressure, Limits: limits})
}

// What was removed may still be on the disk: until it is not, nothing more is removed
// and no task stops for lack of disk.
func TestShortDiskWhileRemoving(t *testing.T) {
	t.Parallel()
	old := ended(held(assignment("old", 0, 9, schema.Service), exited(1, 0, 1)), schema.CauseUpdate, time.Minute)
	low := using("low", 1, 0, 30*mib, 20*mib)
	in := nodeagent.Input{Machine: "m1", Boot: "boot-1", Now: t0, View: &schema.View{Epoch: 1, Version: 1, Assignments: []schema.Assignment{low.Assignment}}, Held: []nodeagent.Held{old, low}}
	in.Pressure, in.Limits = short(100*mib, 80*mib)
	in.Removing = true
	if got := nodeagent.Decide(in).Actions; len(got) != 0 {
		t.Errorf("%v while remains are being removed, want nothing", describe(got))
	}
	in.Removing = false
	if got := nodeagent.Decide(in).Actions; len(got) != 1 || got[0].Kind != nodeagent.Remove {
		t.Errorf("%v after it, want the next remains to go", describe(got))
	}
}

func TestEvictions(t *testing.T) {
	t.Parallel()
	low, mid, prod := using("low", 1, 0, 30*mib, 20*mib), using("mid", 2, 100, 40*mib, 30*mib), using("prod", 3, 200, 50*mib, 60*mib)
	hog := using("hog", 4, 199, 90*mib, mib)
	old := ended(held(assignment("old", 0, 9, schema.Service), exited(1, 0, 1)), schema.CauseUpdate, time.Minute)
	old.Bytes = 10 * mib
	leaving := using("gone", 5, 150, 30*mib, mib)
	leaving.Incarnations[0].Exit, leaving.Incarnations[0].GoneAt = &schema.Exit{Incarnation: 1, At: t0.Add(-time.Second)}, t0.Add(time.Second)
	leaving.Incarnations[0].Stop = &schema.Cause{Kind: schema.CauseOutOfResources, Resource: schema.MachineRAM}
	stale := using("stale", 10, 0, 0, 0)
	stale.Incarnations[0].Usage.DiskAt = t0.Add(-time.Second)
	// Its grace is 5 s.
	going := using("going", 12, 150, 5*mib, 0)
	going.Incarnations[0].Stop, going.Incarnations[0].TermAt = &schema.Cause{Kind: schema.CauseOutOfResources, Resource: schema.MachineRAM}, t0
	clearing := ended(using("cleared", 11, 150, mib, 30*mib), schema.CauseOutOfResources, 0)
	clearing.Clearing, clearing.Incarnations[0].Exit = true, &schema.Exit{Incarnation: 1, At: t0.Add(-time.Second)}
	clearing.Assignment.Generation = 11
	for name, tt := range map[string]struct {
		ram, disk int64
		held      []nodeagent.Held
		want      []string
	}{
		"enough": {100 * mib, 100 * mib, []nodeagent.Held{low, mid, prod}, nil},
		"the lowest priority goes first, and no more than must": {
			80 * mib, 100 * mib, []nodeagent.Held{low, mid, prod}, []string{"term u/low/0 1#1 out of resources"},
		},
		"then the next": {
			60 * mib, 100 * mib,
			[]nodeagent.Held{low, mid, prod},
			[]string{"term u/low/0 1#1 out of resources", "term u/mid/0 2#1 out of resources"},
		},
		"who is over its limit goes before who is not": {
			80 * mib, 100 * mib, []nodeagent.Held{low, mid, prod, hog}, []string{"term u/hog/0 4#1 out of resources"},
		},
		"disk: remains first, and nobody stops for it meanwhile": {
			100 * mib, 80 * mib, []nodeagent.Held{low, mid, old}, []string{"remove u/old/0 9"},
		},
		"disk: without remains": {
			100 * mib, 85 * mib, []nodeagent.Held{low, mid}, []string{"term u/low/0 1#1 out of resources"},
		},
		"disk: not before all is measured": {
			100 * mib, 85 * mib, []nodeagent.Held{low, stale}, nil,
		},
		"memory: one that is leaving is waited for": {
			10 * mib, 100 * mib, []nodeagent.Held{low, going}, nil,
		},
		"disk: what is being cleared is waited for": {
			100 * mib, 85 * mib, []nodeagent.Held{low, clearing}, nil,
		},
		"one that has left since is counted": {
			80 * mib, 100 * mib, []nodeagent.Held{low, leaving}, []string{"end u/gone/0 5 out of resources"},
		},
		"over its own disk limit": {
			100 * mib, 100 * mib, []nodeagent.Held{using("full", 6, 250, mib, 73*mib)}, []string{"term u/full/0 6#1 out of resources"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pressure, limits := short(tt.ram, tt.disk)
			if diff := cmp.Diff(tt.want, describe(decideOn(pressure, limits, tt.held...).Actions)); diff != "" {
				t.Errorf("actions (-want +got):\n%s", diff)
			}
		})
	}
}

// TestEvictionForDisk: who is over its limit goes, and nobody else with it, whatever
// its priority is; inodes count as bytes do.
func TestEvictionForDisk(t *testing.T) {
	t.Parallel()
	low, prod := using("low", 1, 0, 0, 60*mib), using("prod", 2, 200, 0, 90*mib)
	pressure, limits := short(200*mib, 80*mib)
	stop := func(h nodeagent.Held) nodeagent.Held {
		last(&h).Stop = &schema.Cause{Kind: schema.CauseOutOfResources, Resource: schema.OwnDisk}
		last(&h).TermAt = t0
		return h
	}
	files := func(h nodeagent.Held, n int64) nodeagent.Held {
		last(&h).Usage.DiskInodes = n
		return h
	}
	few := pressure
	few.Room.DiskFree, few.Room.InodesTotal, few.Room.InodesFree = 500*mib, 100_000, 900
	inodes := limits
	inodes.Inodes = 1000
	for name, tt := range map[string]struct {
		pressure nodeagent.MachinePressure
		limits   nodeagent.Limits
		held     []nodeagent.Held
		want     []string
	}{
		"the one over its limit, though it is prod": {pressure, limits, []nodeagent.Held{low, prod}, []string{"disk: 90 MiB used, limit 64 MiB"}},
		"nobody else until it has gone":             {pressure, limits, []nodeagent.Held{low, stop(using("gone", 3, 200, 0, 90*mib))}, nil},
		"nobody is over it: the lowest priority": {
			pressure, limits,
			[]nodeagent.Held{low, using("prod", 2, 200, 0, 63*mib)},
			[]string{"machine disk: 80 MiB of 1 GiB left, want 100 MiB; the task used 60 MiB, limit 64 MiB"},
		},
		"more files than its disk limit stands for": {
			few, inodes,
			[]nodeagent.Held{files(using("low", 1, 0, 0, mib), 16_000), files(using("hog", 2, 200, 0, mib), 16_385)},
			[]string{"disk: 16385 inodes used, limit 16384 inodes (by its disk limit of 64 MiB)"},
		},
		"no inodes left": {
			few, inodes,
			[]nodeagent.Held{files(using("low", 1, 0, 0, mib), 100), files(using("mid", 2, 100, 0, mib), 3000)},
			[]string{"machine disk: 900 inodes of 100000 inodes left, want 1000 inodes; the task used 3000 inodes, limit 16384 inodes"},
		},
		"enough inodes": {pressure, inodes, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, a := range decideOn(tt.pressure, tt.limits, tt.held...).Actions {
				got = append(got, a.Cause.Message)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("stopped for (-want +got):\n%s", diff)
			}
		})
	}
}

// TestInodePressure: a file system without inodes is a condition, and ends as one
// without bytes does.
func TestInodePressure(t *testing.T) {
	t.Parallel()
	var c nodeagent.Conditions
	limits := nodeagent.Limits{DiskBytes: 100 * mib, Inodes: 1000}
	room := schema.MachineUsage{DiskFree: 500 * mib, DiskTotal: 1024 * mib, InodesTotal: 65536, InodesFree: 900}
	limits.Pressure(&c, &room, t0)
	const want = "900 of 65536 inodes of the disk are left, want 1000"
	if list := c.List(); len(list) != 1 || list[0].Kind != schema.DiskPressure || list[0].Message != want {
		t.Fatalf("%+v, want %q", list, want)
	}
	room.InodesFree = 2000
	limits.Pressure(&c, &room, t0.Add(time.Minute))
	limits.Pressure(&c, &room, t0.Add(2*time.Minute))
	if list := c.List(); len(list) != 0 {
		t.Errorf("%+v, and there are inodes again", list)
	}
}

func TestEvictionStatesTheNumbers(t *testing.T) {
	t.Parallel()
	pressure, limits := short(80*mib, 100*mib)
	for want, h := range map[string]nodeagent.Held{
		"out of resources: disk: 73 MiB used, limit 64 MiB":                                                          using("a", 1, 0, 0, 73*mib),
		"out of resources: machine memory: 80 MiB of 1 GiB left, want 100 MiB; the task used 30.5 MiB, limit 64 MiB": using("b", 2, 0, 30*mib+mib/2, 0),
	} {
		plan := decideOn(pressure, limits, h)
		if len(plan.Actions) != 1 || plan.Actions[0].Cause.String() != want {
			t.Errorf("actions %v with cause %v: want %q", describe(plan.Actions), plan.Actions[0].Cause, want)
		}
	}
}

// A task over its own disk limit is started again with an empty work directory,
// in the end not at all; one that the machine had no room for ends, and is placed
// elsewhere.
func TestAfterAnEviction(t *testing.T) {
	t.Parallel()
	stopped := func(resource schema.Resource, n int) nodeagent.Held {
		h := using("web", 7, 0, 0, 0)
		h.Incarnations = nil
		for i := range n {
			c := exited(i+1, -1, time.Minute)
			c.Stop = &schema.Cause{Kind: schema.CauseOutOfResources, Resource: resource, Message: "because"}
			h.Incarnations = append(h.Incarnations, c)
		}
		return h
	}
	for name, tt := range map[string]struct {
		held  nodeagent.Held
		want  []string
		cause string
		clear bool
	}{
		"its own disk":              {stopped(schema.OwnDisk, 1), []string{"start u/web/0 7#2"}, "", true},
		"its own disk, again":       {stopped(schema.OwnDisk, schema.DefaultRestart.Attempts+1), []string{"end u/web/0 7 failed"}, "failed: ended, status unknown: stopped: out of resources: because; 5 failures in 1s", true},
		"the memory of the machine": {stopped(schema.MachineRAM, 1), []string{"end u/web/0 7 out of resources"}, "out of resources: because", false},
		"the disk of the machine":   {stopped(schema.MachineDisk, 1), []string{"end u/web/0 7 out of resources"}, "out of resources: because", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			actions := decideOn(nodeagent.MachinePressure{}, nodeagent.Limits{}, tt.held).Actions
			if diff := cmp.Diff(tt.want, describe(actions)); diff != "" {
				t.Fatalf("actions (-want +got):\n%s", diff)
			}
			if a := actions[0]; a.Clear != tt.clear || tt.cause != "" && !strings.HasPrefix(a.Cause.String(), tt.cause) {
				t.Errorf("clear %t, cause %v: want %t, %q", a.Clear, a.Cause, tt.clear, tt.cause)
			}
		})
	}
}

// TestOOMKillsReported: what the kernel has killed of a task that lives is reported.
func TestOOMKillsReported(t *testing.T) {
	t.Parallel()
	web := using("web", 1, 0, mib, mib)
	last(&web).Usage.OOMKills = 3
	pressure, limits := short(500*mib, 500*mib)
	if tasks := decideOn(pressure, limits, web).Tasks; len(tasks) != 1 || tasks[0].OOMKills != 3 {
		t.Errorf("%+v, want 3 kills", tasks)
	}
}
