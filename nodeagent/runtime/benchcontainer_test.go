package runtime_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/schema"
)

// sleeper is an assignment to a container that does nothing.
func sleeper(index int) *schema.Assignment {
	a := contained(assignment(index, "/bin/sleep", "1000"))
	a.Job.Task.Container.User = "0"
	return a
}

// BenchmarkContainer is the time from Start's call to the running container of an image
// that is there, one after the other, and that of the runtime alone for its bundle, each
// after each.
func BenchmarkContainer(b *testing.B) {
	m := newContainerMachine(b, withSpare)
	bare := newBare(b, m)
	var ours, theirs []time.Duration
	var busy [2]int64 // processor time with the end of each, ours and theirs
	used := func() int64 { return usedBy(b, unix.RUSAGE_SELF) + usedBy(b, unix.RUSAGE_CHILDREN) }
	for i := 0; b.Loop(); i++ {
		a := sleeper(1 + i)
		dir := place(b, m.dir, a, 1)
		before := used()
		begin := time.Now()
		p, err := m.Start(b.Context(), dir, a)
		ours = append(ours, time.Since(begin))
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		end(b, p)
		between := used()
		theirs = append(theirs, bare.run(b, 1)...)
		busy[0], busy[1] = busy[0]+between-before, busy[1]+used()-between
		b.StartTimer()
	}
	report(b, ours, theirs, 0.5)
	b.ReportMetric(float64(busy[0])/float64(len(ours))/1e6, "start-cpu-ms")
	b.ReportMetric(float64(busy[1])/float64(len(ours))/1e6, "runtime-cpu-ms")
}

// BenchmarkHundredContainers starts 100 at once: the time to the last one, and that of the
// runtime alone.
func BenchmarkHundredContainers(b *testing.B) {
	const tasks = 100
	var ours, theirs []time.Duration
	var own []int
	for b.Loop() {
		m := newContainerMachine(b, withSpare)
		bare := newBare(b, m)
		m.contained, m.user = true, "0"
		begin := time.Now()
		_, processes := startMany(b, m, tasks)
		ours = append(ours, time.Since(begin))
		for pid, command := range processesOf(m.dir) {
			if strings.Contains(command, "muster-keeper") || strings.Contains(command, keeper.InitPath) {
				own = append(own, private(b, pid))
			}
		}
		for _, p := range processes {
			end(b, p)
		}
		theirs = append(theirs, slices.Max(bare.run(b, tasks)))
	}
	report(b, ours, theirs, 0.5)
	slices.Sort(own) // two of each container
	b.ReportMetric(float64(own[len(own)/4]+own[len(own)*3/4]), "own-KiB")
}

// private returns what a process has of memory that is its own, in KiB.
func private(b *testing.B, pid int) (sum int) {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var which string
		var n int
		if _, err := fmt.Sscanf(line, "Private_%s %d kB", &which, &n); err == nil {
			sum += n
		}
	}
	return sum
}

// report reports a quantile of both.
func report(b *testing.B, ours, theirs []time.Duration, q float64) {
	for _, l := range [][]time.Duration{ours, theirs} {
		slices.Sort(l)
	}
	o, t := ours[int(q*float64(len(ours)))], theirs[int(q*float64(len(theirs)))]
	b.ReportMetric(float64(o)/1e6, "start-ms")
	b.ReportMetric(float64(t)/1e6, "runtime-ms")
	b.ReportMetric(float64(o)/float64(t), "times-runtime")
}

// bare is the bundle of a container of ours, with the image's command as its first
// process and a root directory that is there.
type bare struct{ runtime, dir string }

func newBare(b *testing.B, m *machine) *bare {
	b.Helper()
	_, dir := m.start(sleeper(5000))
	text, err := os.ReadFile(filepath.Join(dir, keeper.SpecFile))
	var spec keeper.Spec
	var config specs.Spec
	if err == nil {
		err = json.Unmarshal(text, &spec)
	}
	if err == nil {
		err = json.Unmarshal(spec.Container.Config, &config)
	}
	if err != nil {
		b.Fatal(err)
	}
	config.Process.Args = spec.Command
	config.Mounts = slices.DeleteFunc(config.Mounts, func(m specs.Mount) bool { return m.Destination == keeper.InitPath })
	for i := range config.Linux.Namespaces {
		config.Linux.Namespaces[i].Path = ""
	}
	r := &bare{spec.Container.Runtime, b.TempDir()}
	root := filepath.Join(r.dir, config.Root.Path)
	err = exec.Command("cp", "-a", spec.Container.Layers[0], root).Run()
	for _, d := range spec.Container.Base {
		err = errors.Join(err, os.MkdirAll(filepath.Join(root, d.Path), 0o755))
	}
	for _, name := range spec.Container.Empty {
		err = errors.Join(err, os.WriteFile(filepath.Join(root, name), nil, 0o644))
	}
	text, jerr := json.Marshal(config)
	if err = errors.Join(err, jerr, os.Chmod(r.dir, 0o711), os.Chmod(filepath.Dir(r.dir), 0o711), os.WriteFile(filepath.Join(r.dir, "config.json"), text, 0o600)); err != nil {
		b.Fatal(err)
	}
	return r
}

// run runs so many at once, and returns how long each took from the begin of all.
func (r *bare) run(b *testing.B, containers int) []time.Duration {
	times := make([]time.Duration, containers)
	var ready, all sync.WaitGroup
	begin, slots := make(chan time.Time), make(chan struct{}, 8) // as startMany
	for i := range times {
		ready.Add(1)
		all.Go(func() {
			goruntime.LockOSThread() // for good: the thread ends with its mount namespace
			err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""))
			_ = unix.Unmount("/sys/fs/cgroup/unified", unix.MNT_DETACH) // crun wants no controller there
			state, pidFile := filepath.Join(r.dir, "state"+strconv.Itoa(i)), filepath.Join(r.dir, "pid"+strconv.Itoa(i))
			c := exec.Command(r.runtime, "--cgroup-manager=disabled", "--root", state, "run", "--detach", "--pid-file", pidFile, "--bundle", r.dir, "task")
			// crun gives what it has as standard streams to the container's user: not /dev/null.
			own, oerr := os.Create(filepath.Join(r.dir, "streams"+strconv.Itoa(i)))
			c.Stdin, c.Stdout, c.Stderr = own, own, own
			ready.Done()
			at := <-begin
			slots <- struct{}{}
			err = errors.Join(err, oerr, c.Run())
			times[i] = time.Since(at)
			<-slots
			_ = own.Close()
			text, perr := os.ReadFile(pidFile)
			pid, aerr := strconv.Atoi(strings.TrimSpace(string(text)))
			if err := errors.Join(err, perr, aerr); err != nil {
				b.Error(err)
				return
			}
			if err := errors.Join(unix.Kill(pid, unix.SIGKILL), os.RemoveAll(state), os.Remove(pidFile)); err != nil {
				b.Error(err)
			}
		})
	}
	ready.Wait()
	now := time.Now()
	for range times {
		begin <- now
	}
	all.Wait()
	return times
}
