package host

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
)

// The files of both versions are read alike.
func TestReadCounters(t *testing.T) {
	t.Parallel()
	for name, files := range map[string][]struct {
		read func(*counters, []byte)
		text string
	}{
		"v1": {
			{readCurrent, "10485760\n"},
			{readMemoryStat, "cache 1\ninactive_file 7\ntotal_cache 4194304\ntotal_inactive_file 2097152\n"},
			{readOOM, "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"},
			{readPids, "12\n"},
			{readCPU, "1500000000\n"},
			{readThrottled, "nr_periods 9\nnr_throttled 2\nthrottled_time 250000000\n"},
		},
		"v2": {
			{readCurrent, "10485760\n"},
			{readMemoryStat, "anon 1\nfile 4194304\ninactive_file 2097152\n"},
			{readOOM, "low 0\noom 9\noom_kill 3\noom_group_kill 0\n"},
			{readPids, "12\n"},
			{readCPUStat, "usage_usec 1500000\nuser_usec 1\n"},
			{readThrottled, "nr_throttled 2\nthrottled_usec 250000\n"},
		},
	} {
		var c counters
		for _, f := range files {
			f.read(&c, []byte(f.text))
		}
		if c.ram != 8<<20 || c.cache != 4<<20 || c.oomKills != 3 || c.processes != 12 || c.cpu != 1500*time.Millisecond || c.throttled != 250*time.Millisecond {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// Children and their children count, with what those that have ended used.
func TestBelow(t *testing.T) {
	t.Parallel()
	parent, s, ok := parseStat(7, []byte("7 (a b) c) S 3 7 7 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0 99 1000 5 18446744073709551615"))
	if !ok || parent != 3 || s.cpu != time.Second || s.pid != 7 {
		t.Fatalf("parent %d, %+v, %t", parent, s, ok)
	}
	table := processTable{1: {{pid: 2, cpu: time.Second, ram: 5}}, 2: {{pid: 4, cpu: time.Second, ram: 7}}, 3: {s}}
	c := counters{delay: map[int]time.Duration{}}
	table.below(1, &c, lacking{true, true, true})
	if c.cpu != 2*time.Second || c.ram != 12 || c.processes != 2 {
		t.Errorf("%+v", c)
	}
}

// What one thread or more has waited is taken, not what all have at once.
func TestReadPressure(t *testing.T) {
	t.Parallel()
	var c counters
	readPressure(&c, []byte("some avg10=0.00 avg60=1.50 avg300=0.36 total=250000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"))
	if !c.pressed || c.pressure != 250*time.Millisecond {
		t.Errorf("%v, %t", c.pressure, c.pressed)
	}
}

// TestIdleUsage: of a task that has not run since, nothing is read but that, and its rates
// are 0; what it does afterwards is not thinned by the time in which it did nothing.
func TestIdleUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := &Meter{dirs: []string{dir}, sockets: new(socketBuffers).now}
	usage := func() schema.Usage {
		u, ok := m.Usage()
		if !ok {
			t.Fatal("nothing of it is left")
		}
		return u
	}
	put("cpuacct.usage", "1000000\n")
	put("pids.current", "2\n")
	put("memory.usage_in_bytes", "1000\n")
	usage()
	put("memory.usage_in_bytes", "2000\n")
	if u := usage(); u.RAMBytes != 1000 || u.CPUMilli != 0 || u.Processes != 2 {
		t.Errorf("idle: %+v, want what it was", u)
	}
	was := m.last.at
	if usage(); !m.last.at.After(was) {
		t.Error("the next rate is of the time before, too")
	}
	put("cpuacct.usage", "2000000\n")
	if u := usage(); u.RAMBytes != 2000 || u.CPUMilli <= 0 {
		t.Errorf("it has run: %+v, want what it is", u)
	}
	put("memory.usage_in_bytes", "3000\n")
	m.full = m.full.Add(-fullEvery)
	if u := usage(); u.RAMBytes != 3000 {
		t.Errorf("after a while: %+v, want what it is", u)
	}
	if err := os.Remove(filepath.Join(dir, "cpuacct.usage")); err != nil {
		t.Fatal(err)
	}
	put("pids.current", "0\n")
	if u, ok := m.Usage(); ok {
		t.Errorf("%+v of a task that has ended", u)
	}
}
