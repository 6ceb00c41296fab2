package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// master is a master's process.
type master struct {
	cmd      *exec.Cmd
	log      string // file
	client   *http.Client
	profiles string // URL
}

// profilesAt is what the log says of where profiles are served.
var profilesAt = regexp.MustCompile(`msg=profiles address=(\S+)`)

// startMaster starts a master, and returns when that leads.
func startMaster(ctx context.Context, exe, log string, args ...string) (*master, error) {
	file, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer file.Close()                // the process has its own
	cmd := exec.Command(exe, args...) //nolint:gosec,noctx // what is measured; it is killed by kill
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = file
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	m := &master{cmd: cmd, log: log}
	line := make(chan string, 1)
	go func() {
		r := bufio.NewReader(out)
		first, _ := r.ReadString('\n') // an early end says nothing
		line <- first
		_, _ = io.Copy(io.Discard, r)
	}()
	select {
	case first := <-line:
		_, socket, ok := strings.Cut(strings.TrimSpace(first), " at unix:")
		said, _ := os.ReadFile(log) // nothing is found in nothing
		at := profilesAt.FindSubmatch(said)
		if !ok || at == nil {
			m.kill()
			return nil, errors.Join(fmt.Errorf("the master said %q", first), m.said())
		}
		m.profiles = string(at[1])
		m.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}}}
		return m, nil
	case <-ctx.Done():
		m.kill()
		return nil, context.Cause(ctx)
	}
}

func (m *master) pid() int { return m.cmd.Process.Pid }

// kill ends the process at once, if it has not ended.
func (m *master) kill() {
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait()
}

// said returns the end of the log as an error.
func (m *master) said() error {
	const most = 2000
	b, err := os.ReadFile(m.log)
	if err != nil {
		return err
	}
	return fmt.Errorf("the master's log ends with: %s", b[max(len(b)-most, 0):])
}

// get asks the API, and returns how long the answer took and its size in bytes.
func (m *master) get(ctx context.Context, path string) (took time.Duration, body []byte, err error) {
	began := time.Now()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://master"+path, nil)
	if err != nil {
		return 0, nil, err
	}
	answer, err := m.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	if body, err = io.ReadAll(answer.Body); err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %.200s", path, answer.Status, body)
	}
	return time.Since(began), body, err
}

// moment is when a master had used so much processor time.
type moment struct {
	at  time.Time
	cpu time.Duration
}

// sample is what a master has used so far. To ask for it costs, too: what is between
// two samples is from the answer of one to the question of the other.
type sample struct {
	asked, answered moment
	writes          float64 // to the store
}

// written is how many writes to the store the metrics say that there were.
var written = regexp.MustCompile(`(?m)^muster_store_writes_total (\S+)$`)

func (m *master) sample() (s sample, err error) {
	if s.asked, err = m.moment(); err != nil {
		return s, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, metrics, err := m.get(ctx, "/metrics")
	for err != nil { // a master that has much to do answers later
		if sleep(ctx, time.Second) != nil {
			return s, err
		}
		_, metrics, err = m.get(ctx, "/metrics")
	}
	found := written.FindSubmatch(metrics)
	if found == nil {
		return s, errors.New("the metrics do not say how often the store was written to")
	}
	if s.writes, err = strconv.ParseFloat(string(found[1]), 64); err != nil {
		return s, err
	}
	s.answered, err = m.moment()
	return s, err
}

func (m *master) moment() (moment, error) {
	at := time.Now()
	cpu, err := processorTime(m.pid())
	return moment{at, cpu}, err
}

// ticks is the unit of /proc/PID/stat: USER_HZ, which is 100 on all processors that Go
// knows.
const ticks = 100

// processorTime returns what a process and those of its children that have ended have
// used: utime, stime, cutime and cstime of proc(5).
func processorTime(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	var sum int64
	for _, f := range fields[11:15] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return time.Duration(sum) * time.Second / ticks, nil
}

var memoryLine = regexp.MustCompile(`(?m)^(VmRSS|VmHWM):\s+(\d+) kB$`)

// residentBytes returns how much memory a process has, and had at most.
func residentBytes(pid int) (now, peak int64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for _, m := range memoryLine.FindAllSubmatch(b, -1) {
		n, err := strconv.ParseInt(string(m[2]), 10, 64)
		if err != nil {
			return 0, 0, err
		}
		if string(m[1]) == "VmRSS" {
			now = n << 10
		} else {
			peak = n << 10
		}
	}
	return now, peak, nil
}
