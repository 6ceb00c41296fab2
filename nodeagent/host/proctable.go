package host

import (
	"bytes"
	"os"
	"strconv"
	"sync"
	"time"
)

// processTable is the machine's process table at one moment, by parent: how
// tasks without a cgroup are measured.
type processTable map[int][]procStat

// procStat is the usage in /proc/PID/stat.
type procStat struct {
	pid int
	cpu time.Duration // its own, and that of children it has waited for
	ram int64         // resident, in bytes
}

// clockTick is the unit of times in /proc/PID/stat: USER_HZ, 100 on every
// architecture that Go runs on.
const clockTick = 10 * time.Millisecond

// tableFor is how long a process table is good for: tasks are measured one after
// the other, and each asks for it.
const tableFor = time.Second

// processTables gives the process table as of a moment ago.
type processTables struct {
	mu sync.Mutex // guards what follows
	t  processTable
	at time.Time
}

func (c *processTables) now() processTable {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.t == nil || time.Since(c.at) > tableFor {
		c.t, c.at = readProcesses(), time.Now()
	}
	return c.t
}

// readProcesses reads the process table. What ends meanwhile is left out.
func readProcesses() processTable {
	t := processTable{}
	dir, err := os.Open("/proc")
	if err != nil {
		return t
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return t
	}
	var buffer [1024]byte
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		b, err := readInto("/proc/"+name+"/stat", buffer[:])
		if err != nil {
			continue
		}
		if parent, s, ok := parseStat(pid, b); ok {
			t[parent] = append(t[parent], s)
		}
	}
	return t
}

// parseStat takes the fields after the last ")": the command before it may hold
// anything.
func parseStat(pid int, b []byte) (parent int, s procStat, ok bool) {
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 22 {
		return 0, s, false
	}
	n := func(i int) int64 {
		v, _ := strconv.ParseInt(string(f[i]), 10, 64) // the kernel writes numbers
		return v
	}
	s = procStat{
		pid: pid, cpu: time.Duration(n(11)+n(12)+n(13)+n(14)) * clockTick, ram: n(21) * int64(os.Getpagesize()),
	}
	return int(n(1)), s, true
}

// below adds what the processes below pid use, as far as it is lacking.
func (t processTable) below(pid int, c *counters, lack lacking) {
	var buffer [128]byte
	cpu, ram, count := time.Duration(0), int64(0), int64(0)
	todo := []int{pid}
	for len(todo) > 0 {
		children := t[todo[0]]
		todo = todo[1:]
		for _, p := range children {
			cpu, ram, count = cpu+p.cpu, ram+p.ram, count+1
			todo = append(todo, p.pid)
			if lack.cpu && len(c.delay) < maxThreads {
				addDelay(c, "/proc/"+strconv.Itoa(p.pid)+"/schedstat", p.pid, buffer[:])
			}
		}
	}
	if lack.cpu {
		c.cpu = cpu
	}
	if lack.memory {
		c.ram = ram
	}
	if lack.processes {
		c.processes = count
	}
}

// pids returns the processes below pid.
func (t processTable) pids(pid int) []int {
	var list []int
	for todo := []int{pid}; len(todo) > 0; todo = todo[1:] {
		for _, p := range t[todo[0]] {
			list, todo = append(list, p.pid), append(todo, p.pid)
		}
	}
	return list
}
