package runtime

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/nodeagent"
)

// CPU returns what the running task has used of processors, and how long it has
// waited for them. Where the kernel counts the waits of a cgroup (pressure, in any
// v2 hierarchy), they are those in which one of its threads or more waited; else
// those of all threads that there are now are added up.
func (p *Process) CPU() nodeagent.CPUTime {
	var t nodeagent.CPUTime
	if p.alloc != nil {
		return t // what runs inside is measured for itself
	}
	usage, waits := false, false
	for _, dir := range p.handle.Spec.Cgroups {
		stat := readStat(filepath.Join(dir, "cpu.stat"))
		if v, ok := stat["usage_usec"]; ok {
			t.Used, usage = time.Duration(v)*time.Microsecond, true
		}
		t.Throttled += time.Duration(stat["throttled_usec"])*time.Microsecond + time.Duration(stat["throttled_time"])
		if total, ok := pressure(filepath.Join(dir, "cpu.pressure")); ok {
			t.Waited, waits = total, true
		}
	}
	if usage && waits {
		return t
	}
	used, waited := p.threads()
	if !usage {
		t.Used = used
	}
	if !waits {
		t.Waited = waited
	}
	return t
}

// readStat reads a file with a name and a number in each line; none if it cannot
// be read.
func readStat(file string) map[string]int64 {
	out := map[string]int64{}
	b, _ := os.ReadFile(file)
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			out[name] = n
		}
	}
	return out
}

// pressure reads the time in which some thread of a cgroup waited; false where
// the kernel does not count it.
func pressure(file string) (time.Duration, bool) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "some "); ok {
			_, total, _ := strings.Cut(rest, "total=")
			n, err := strconv.ParseInt(strings.TrimSpace(total), 10, 64)
			return time.Duration(n) * time.Microsecond, err == nil
		}
	}
	return 0, false
}

// threads adds up what the task's threads have used and how long they have
// waited.
func (p *Process) threads() (used, waited time.Duration) {
	var tids []string
	for _, dir := range p.handle.Spec.Cgroups {
		for _, name := range []string{"cgroup.threads", "tasks"} {
			if b, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
				tids = strings.Fields(string(b))
			}
		}
		if len(tids) > 0 {
			break
		}
	}
	for _, tid := range tids {
		b, _ := os.ReadFile(filepath.Join("/proc", tid, "schedstat")) // a thread that has ended counts no more
		if f := strings.Fields(string(b)); len(f) == 3 {
			u, _ := strconv.ParseInt(f[0], 10, 64)
			w, _ := strconv.ParseInt(f[1], 10, 64)
			used, waited = used+time.Duration(u), waited+time.Duration(w)
		}
	}
	return used, waited
}
