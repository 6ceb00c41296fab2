package runtime_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// resident returns the sums of a keeper's resident and proportional memory.
func resident(t testing.TB, pid int) (rss, pss int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var n int
		if _, err := fmt.Sscanf(line, "Rss: %d kB", &n); err == nil {
			rss = n
		}
		if _, err := fmt.Sscanf(line, "Pss: %d kB", &n); err == nil {
			pss = n
		}
	}
	return rss, pss
}

// maxResident is what a keeper may hold of its own, in KiB.
const maxResident = 3 << 10

func TestKeeperIsSmall(t *testing.T) {
	t.Parallel()
	if filepath.Base(keeperExe) != "muster-keeper" {
		t.Skip("NOT TESTED: needs the real muster-keeper")
	}
	var s unix.Statfs_t
	if err := unix.Statfs(keeperExe, &s); err != nil {
		t.Fatal(err)
	}
	if s.Type == unix.TMPFS_MAGIC {
		t.Skip("NOT TESTED: the program lies in memory, and the kernel maps all of it")
	}
	m := newMachine(t)
	_, dir := m.start(assignment(0, "sleep", "1000"))
	for pid, command := range processesOf(filepath.Dir(dir)) { // with the first process of its namespaces
		if !strings.Contains(command, "muster-keeper") {
			continue
		}
		rss := 0
		defer func() { t.Logf("resident at the end: %d KiB", rss) }()
		// It answers first, and then gives back what its start has touched.
		// Pages of the program that others have read count, too, as many as the
		// kernel happens to map.
		eventually(t, "a keeper within the limit", func() bool {
			rss, _ = resident(t, pid)
			return rss < maxResident
		})
		t.Logf("resident: %d KiB: %s", rss, command)
	}
}

// BenchmarkStart is the time from Start's call to the running task, one after
// the other.
func BenchmarkStart(b *testing.B) {
	m := newMachine(b)
	var times []time.Duration
	for i := 0; b.Loop(); i++ {
		a := assignment(i, "sleep", "1000")
		dir := place(b, m.dir, a, 1)
		begin := time.Now()
		p, err := m.Start(b.Context(), dir, a)
		if err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(begin))
		b.StopTimer()
		end(b, p)
		b.StartTimer()
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2])/1e6, "p50-ms")
}

// BenchmarkHundred starts 100 tasks at once, and weighs their keepers.
func BenchmarkHundred(b *testing.B) {
	const tasks = 100
	var starts, ends []time.Duration
	var all time.Duration
	var rss, pss []int
	for b.Loop() {
		m := newMachine(b)
		begin := time.Now()
		times, processes := startMany(b, m, tasks)
		all += time.Since(begin)
		starts = append(starts, times...)
		for pid, command := range processesOf(m.dir) {
			if strings.Contains(command, "muster-keeper") {
				r, p := resident(b, pid)
				rss, pss = append(rss, r), append(pss, p)
			}
		}
		begin = time.Now()
		for _, p := range processes {
			if err := p.Signal(true); err != nil {
				b.Error(err)
			}
		}
		for _, p := range processes {
			wait(b, p)
		}
		ends = append(ends, time.Since(begin))
	}
	slices.Sort(starts)
	slices.Sort(rss)
	slices.Sort(pss)
	slices.Sort(ends)
	b.ReportMetric(float64(starts[len(starts)/2])/1e6, "start-p50-ms")
	b.ReportMetric(float64(starts[len(starts)*99/100])/1e6, "start-p99-ms")
	b.ReportMetric(float64(all)/1e6/float64(b.N), "all-started-ms")
	b.ReportMetric(float64(ends[len(ends)/2])/1e6, "all-killed-ms")
	b.ReportMetric(float64(rss[len(rss)/2]), "rss-KiB")
	b.ReportMetric(float64(rss[len(rss)-1]), "rss-max-KiB")
	b.ReportMetric(float64(pss[len(pss)/2]), "pss-KiB")
}
