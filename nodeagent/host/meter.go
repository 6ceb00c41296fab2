package host

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/cgroup"
	"github.com/musterhq/muster/schema"
)

// counters are what the kernel has counted of an incarnation since its start,
// and what it holds now.
type counters struct {
	at             time.Time
	cpu, throttled time.Duration
	delay          map[int]time.Duration // of each thread, by its id
	pressure       time.Duration         // in which one thread or more waited for a processor
	pressed        bool                  // pressure is counted
	io             time.Duration         // in which one thread or more waited for a disk
	ram, cache     int64                 // bytes
	processes      int64
	oomKills       int64
}

// lacking is what of counters could not be had from a cgroup.
type lacking struct{ cpu, memory, processes bool }

// maxThreads is how many threads of a task are asked for their scheduling delay:
// each takes a read of its own.
const maxThreads = 64

// Meter measures one incarnation: by its cgroups, and from the process table as far as
// it has none that count.
type Meter struct {
	dirs  []string // of its cgroup
	above int      // a process above all of the task's
	disk  bool     // its use of the disk can be bounded, so waits for that count
	table func() processTable
	// sockets returns what sockets hold that no cgroup is charged for, by inode; nil if it
	// is not much.
	sockets func() map[uint64]int64

	mu      sync.Mutex // guards what follows
	sources []source
	opened  bool
	last    counters
	spent   *source // has the processor time; nil where no file has
	usage   schema.Usage
	full    time.Time // when usage was measured
}

// fullEvery is the longest time between two samples in full of a task that uses no
// processor: what it has otherwise can change by others alone, as its memory does when
// the kernel takes some back.
const fullEvery = 30 * time.Second

// idle returns the last usage, if the task has not run since: then nothing else of it is
// read, which would be most of what a machine with many tasks that wait is measured for.
func (m *Meter) idle(now time.Time) (schema.Usage, bool) {
	if m.spent == nil || m.full.IsZero() || now.Sub(m.full) >= fullEvery {
		return schema.Usage{}, false
	}
	var c counters
	var buffer [1 << 10]byte
	text, err := readInto(m.spent.path, buffer[:])
	if err != nil {
		return schema.Usage{}, false
	}
	if m.spent.read(&c, text); c.cpu != m.last.cpu {
		return schema.Usage{}, false
	}
	m.last.at = now
	u := m.usage
	u.At, u.CPUMilli, u.ThrottledMilli, u.DelayMilli = now, 0, 0, 0
	return u, true
}

// look is what the counters are read for.
type look int

const (
	sampling   look = 1 << iota // how much it uses
	throttling                  // whether it has the processors that it wants
)

// source is one file of a cgroup and how to read it.
type source struct {
	looks look
	path  string
	read  func(c *counters, text []byte)
	has   func(l *lacking)
}

// open finds out which files the task's cgroups have. The files in a directory show what
// it supports, so v1, v2 and both together are handled alike.
func (m *Meter) open() {
	m.opened = true
	dirs := m.dirs
	cpu, pressure, io := false, false, !m.disk || !bounded(dirs)
	none := func(*lacking) {}
	for _, dir := range dirs {
		memory := func(l *lacking) { l.memory = false }
		if !m.add(sampling, dir, "memory.current", readCurrent, memory) {
			m.add(sampling, dir, "memory.usage_in_bytes", readCurrent, memory)
		}
		m.add(sampling, dir, "memory.stat", readMemoryStat, none) // after the sum that it is taken from
		m.add(sampling, dir, "memory.kmem.tcp.usage_in_bytes", readSockets, none)
		m.add(sampling, dir, "memory.events", readOOM, none)
		m.add(sampling, dir, "memory.oom_control", readOOM, none)
		m.add(sampling, dir, "pids.current", readPids, func(l *lacking) { l.processes = false })
		used := func(l *lacking) { l.cpu = false }
		cpu = cpu || m.add(sampling|throttling, dir, "cpuacct.usage", readCPU, used)
		if !cpu && hasField(filepath.Join(dir, "cpu.stat"), "usage_usec") {
			cpu = m.add(sampling|throttling, dir, "cpu.stat", readCPUStat, used)
		}
		if cpu && m.spent == nil {
			last := m.sources[len(m.sources)-1]
			m.spent = &last
		}
		m.add(sampling|throttling, dir, "cpu.stat", readThrottled, none)
		if !pressure && hasField(filepath.Join(dir, "cpu.pressure"), "some ") { // it is there, and fails, where nothing is counted
			pressure = m.add(throttling, dir, "cpu.pressure", readPressure, none)
		}
		if !io && hasField(filepath.Join(dir, "io.pressure"), "some ") {
			io = m.add(throttling, dir, "io.pressure", readIOPressure, none)
		}
	}
	looks := sampling
	if !pressure {
		looks |= throttling
	}
	for _, dir := range dirs {
		if m.add(looks, dir, "tasks", readThreads, none) || m.add(looks, dir, "cgroup.threads", readThreads, none) {
			break
		}
	}
}

// bounded reports whether one of a task's cgroups can bound its use of disks.
func bounded(dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool {
		return !gone(filepath.Join(dir, "io.max")) || !gone(filepath.Join(dir, "blkio.throttle.write_bps_device"))
	})
}

// add has a file read in looks; false if there is none.
func (m *Meter) add(looks look, dir, name string, read func(*counters, []byte), has func(*lacking)) bool {
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		return false
	}
	m.sources = append(m.sources, source{looks, path, read, has})
	return true
}

// measure reads the counters that a look is about, from /proc as far as there is
// no cgroup that has them.
func (m *Meter) measure(why look) counters {
	if !m.opened {
		m.open()
	}
	c := counters{at: time.Now(), delay: map[int]time.Duration{}}
	lack := lacking{cpu: true, memory: why == sampling, processes: why == sampling}
	var buffer [8 << 10]byte
	for _, s := range m.sources {
		if s.looks&why == 0 {
			continue
		}
		if text, err := readInto(s.path, buffer[:]); err == nil {
			s.read(&c, text)
			s.has(&lack)
		}
	}
	if lack != (lacking{}) && m.above > 0 {
		m.table().below(m.above, &c, lack)
	}
	return c
}

// CPU returns what it has used of processors and how long it has waited for
// them: for that one of its threads or more waited, where the kernel counts it, and
// else for all threads that there are now, up to maxThreads, added up.
func (m *Meter) CPU() nodeagent.CPUTime {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.measure(throttling)
	t := nodeagent.CPUTime{Used: c.cpu, Throttled: c.throttled, Waited: c.pressure, IOWaited: c.io}
	if !c.pressed {
		for _, d := range c.delay {
			t.Waited += d
		}
	}
	return t
}

// Usage returns the use since the last call, but for its disk; the first has no rates
// yet. It is false for a task of which nothing is left.
func (m *Meter) Usage() (schema.Usage, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if u, ok := m.idle(time.Now()); ok {
		return u, true
	}
	c := m.measure(sampling)
	if c.processes == 0 {
		return schema.Usage{}, false
	}
	if of := m.sockets(); of != nil {
		c.ram += heldInSockets(m.PIDs(), of)
	}
	u := schema.Usage{
		At: c.at, RAMBytes: c.ram, CacheBytes: c.cache, Processes: c.processes, OOMKills: c.oomKills, Note: m.note(),
	}
	if last := m.last; !last.at.IsZero() && c.at.After(last.at) {
		took := c.at.Sub(last.at)
		u.CPUMilli = milli(c.cpu-last.cpu, took)
		u.ThrottledMilli = milli(c.throttled-last.throttled, took)
		var delay time.Duration
		for id, d := range c.delay {
			if before := last.delay[id]; d >= before {
				delay += d - before
			} else { // another thread has the id now
				delay += d
			}
		}
		u.DelayMilli = milli(delay, took)
	}
	m.last, m.usage, m.full = c, u, c.at
	return u, true
}

// PIDs returns its processes now, those of commands beside it included, sorted.
func (m *Meter) PIDs() []int {
	var pids []int
	for _, dir := range m.dirs { // each has all of it
		pids = cgroup.Members(dir)
		if s := (unix.Stat_t{}); unix.Stat(dir, &s) != nil || s.Nlink > 2 { // with some below
			beside, _ := filepath.Glob(filepath.Join(dir, "exec-*"))
			for _, dir := range beside {
				pids = append(pids, cgroup.Members(dir)...)
			}
		}
		if len(pids) > 0 {
			break
		}
	}
	if len(pids) == 0 {
		pids = m.table().pids(m.above)
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

// note says what cannot be measured without a cgroup.
func (m *Meter) note() string {
	if len(m.sources) > 0 {
		return ""
	}
	return "without a cgroup: memory is what its processes have resident, shared pages counted for each"
}

// milli returns d in thousandths of the time that passed, never below 0.
func milli(d, passed time.Duration) int64 {
	return max(0, int64(d)*1000/int64(passed))
}

// readInto reads a small file into buffer, without the system calls that have no effect
// for a file of the kernel: os.Open would ask the poller to watch it. What is longer is
// cut off.
func readInto(path string, buffer []byte) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	n := 0
	for n < len(buffer) {
		k, err := unix.Read(fd, buffer[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || k <= 0 {
			break
		}
		n += k
	}
	return buffer[:n], nil
}

func hasField(path, field string) bool {
	b, err := os.ReadFile(path)
	return err == nil && bytes.Contains(b, []byte(field))
}

// fields calls f with each "name number" line. A name is good until f returns.
func fields(text []byte, f func(name []byte, n int64)) {
	for line := range bytes.Lines(text) {
		name, value, ok := bytes.Cut(line, []byte(" "))
		if !ok {
			continue
		}
		if n, ok := decimal(value); ok {
			f(name, n)
		}
	}
}

func number(text []byte) int64 {
	n, _ := decimal(text) // 0 is as good as any
	return n
}

// decimal is strconv.ParseInt of what is no string yet, and is made none: so much is
// read of each task that the collector would have most of the work.
func decimal(text []byte) (n int64, ok bool) {
	text = bytes.TrimSpace(text)
	for _, c := range text {
		if c < '0' || c > '9' || n > (math.MaxInt64-9)/10 {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, len(text) > 0
}

func readCurrent(c *counters, text []byte) { c.ram = number(text) }

// readMemoryStat takes what the kernel can take back at once out of the memory.
// The v1 names with "total_" count cgroups below too, as those of v2 do.
func readMemoryStat(c *counters, text []byte) {
	var inactive, v1Inactive, cache, v1Cache int64
	v1 := false
	fields(text, func(name []byte, n int64) {
		switch string(name) {
		case "total_inactive_file":
			v1Inactive, v1 = n, true
		case "total_cache":
			v1Cache = n
		case "inactive_file":
			inactive = n
		case "file":
			cache = n
		}
	})
	if v1 {
		inactive, cache = v1Inactive, v1Cache
	}
	c.cache, c.ram = cache, max(0, c.ram-inactive)
}

// readSockets adds the buffers of sockets to the memory, which v1 leaves out.
func readSockets(c *counters, text []byte) { c.ram += number(text) }

func readOOM(c *counters, text []byte) {
	fields(text, func(name []byte, n int64) {
		if string(name) == "oom_kill" {
			c.oomKills = n
		}
	})
}

func readPids(c *counters, text []byte) { c.processes = number(text) }

func readCPU(c *counters, text []byte) { c.cpu = time.Duration(number(text)) }

func readCPUStat(c *counters, text []byte) {
	fields(text, func(name []byte, n int64) {
		if string(name) == "usage_usec" {
			c.cpu = time.Duration(n) * time.Microsecond
		}
	})
}

func readThrottled(c *counters, text []byte) {
	fields(text, func(name []byte, n int64) {
		switch string(name) {
		case "throttled_time": // v1
			c.throttled = time.Duration(n)
		case "throttled_usec":
			c.throttled = time.Duration(n) * time.Microsecond
		}
	})
}

func readPressure(c *counters, text []byte) { c.pressure, c.pressed = someTotal(text) }

func readIOPressure(c *counters, text []byte) { c.io, _ = someTotal(text) }

// someTotal takes the time in which one thread or more waited, from a line such
// as "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234", in microseconds.
func someTotal(text []byte) (waited time.Duration, counted bool) {
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "some "); ok {
			_, total, _ := strings.Cut(rest, "total=")
			n, err := strconv.ParseInt(strings.TrimSpace(total), 10, 64)
			return time.Duration(n) * time.Microsecond, err == nil
		}
	}
	return 0, false
}

// readThreads takes the time that each thread has waited for a processor: the
// second number of its schedstat, which needs no cgroup controller.
func readThreads(c *counters, text []byte) {
	var buffer [128]byte
	for line := range bytes.Lines(text) {
		id, ok := decimal(line)
		if !ok || len(c.delay) == maxThreads {
			return
		}
		addDelay(c, "/proc/"+strconv.FormatInt(id, 10)+"/schedstat", int(id), buffer[:])
	}
}

func addDelay(c *counters, path string, id int, buffer []byte) {
	b, err := readInto(path, buffer)
	if err != nil {
		return // it has ended
	}
	_, rest, _ := bytes.Cut(b, []byte(" "))
	waited, _, ok := bytes.Cut(rest, []byte(" "))
	if n, isNumber := decimal(waited); ok && isNumber {
		c.delay[id] = time.Duration(n)
	}
}
