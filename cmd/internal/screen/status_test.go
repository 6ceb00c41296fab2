package screen

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/quota"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

var update = flag.Bool("update", false, "write the golden files")

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// five is a cell at rest.
func five() *status.Status {
	const commit = "db48b42f00112233445566778899aabbccddeeff"
	s := &status.Status{
		Cell: "local", At: noon, Commit: commit, Applied: commit, Converged: true,
		By:       schema.NewAuthorship("Ada", "web: three tasks", noon.Add(-2*time.Minute-time.Second)),
		Machines: machines(3),
		Jobs: []status.JobStatus{
			{Name: "search/web", Kind: schema.Service, Band: schema.BandProduction, Desired: 3, Running: 3, Since: noon.Add(-2 * time.Minute), Commit: commit},
			{Name: "search/index", Kind: schema.Batch, Band: schema.BandBatch, Desired: 2, Running: 2, Since: noon.Add(-50 * time.Hour), Commit: "0123456789abcdef"},
		},
	}
	for i := range s.Jobs {
		for n := range s.Jobs[i].Desired {
			s.Tasks = append(s.Tasks, status.TaskStatus{
				Name: fmt.Sprintf("%s/%d", s.Jobs[i].Name, n), State: status.TaskRunning, Machine: fmt.Sprintf("m-%02d", n), PID: 1000 + n,
				StartedAt: noon.Add(-90 * time.Second), Ports: schema.PortsOf(map[string]int{"http": 20000 + n}),
			})
		}
	}
	return s
}

func machines(n int) []status.MachineStatus {
	var out []status.MachineStatus
	for i := range n {
		out = append(out, status.MachineStatus{
			Name: fmt.Sprintf("m-%02d", i), Health: "up", Tasks: 2,
			Capacity: schema.Resources{CPUMilli: 4000, RAMBytes: 8 << 30, DiskBytes: 100 << 30}, Used: schema.Resources{CPUMilli: 1500, RAMBytes: 512 << 20, DiskBytes: 1 << 30},
		})
	}
	return out
}

// sixty has 52 tasks that are done, four jobs that are rejected for one quota, three
// that wait for one cause, a machine that is silent, and one that is drained.
func sixty() *status.Status {
	s := five()
	s.Commit, s.Converged, s.Machines = "1234567890abcdef1234567890abcdef12345678", false, machines(12)
	s.Machines[4].Health = "silent"
	s.Machines[7].Cordoned, s.Machines[7].Draining = true, &control.Draining{Object: `machine."m-07"`, Left: 2}
	s.Machines[9].Notes = []string{"3 of its ports in use by other processes: 20001 20002 20003"}
	s.Waits = []status.Wait{
		{Kind: status.WaitCompiling, Name: s.Commit, Message: "commit 1234567890 is being compiled"},
		{Kind: status.WaitDrain, Name: "m-07", Message: "machine m-07 is draining: 2 tasks left"},
	}
	s.Jobs = append(s.Jobs, status.JobStatus{Name: "research/primes", Kind: schema.Batch, Band: schema.BandFree, Desired: 52, Done: 52, Since: noon.Add(-3 * time.Hour), Commit: "aaaabbbbccccdddd"})
	for i := range 52 {
		s.Tasks = append(s.Tasks, status.TaskStatus{Name: fmt.Sprintf("research/primes/%d", i), State: status.TaskDone, Reason: "finished: exited with status 0"})
	}
	long := "owner ads has more than its quota at band production in cell local: " + strings.Repeat("ramBytes 2,147,483,648 (2 GiB) of 1,073,741,824 (1 GiB), short by 1,073,741,824 (1 GiB); ", 7) + "largest jobs by ramBytes: auction 2 GiB"
	for _, job := range []string{"auction", "billing", "clicks", "a-job-whose-name-is-as-long-as-names-may-be-or-nearly-so"} {
		name := "ads/" + job
		d := schema.Diagnostic{Severity: schema.Error, Position: schema.Position{Path: "teams/ads/ads.cue", Line: 9, Column: 6}, Field: "job." + job, Message: long + "; the job asks for tasks 2", Hint: "ask for less"}
		s.Rejected = append(s.Rejected, status.Rejection{Job: name, User: "ads", Band: schema.BandProduction, Cause: quota.RejectedOverQuota, Diagnostic: d, Next: "muster why " + name})
	}
	cause := "0 of 12 machines fit: 12 lack CPU; 10m less would fit on 1"
	for _, job := range []string{"api", "crawl", "front", "suggest", "spell"} {
		j := status.JobStatus{Name: "search/" + job, Kind: schema.Service, Band: schema.BandProduction, Desired: 2, Running: 1, Pending: 1, Cause: cause, Since: noon, Commit: s.Applied}
		j.Reason = "1 of 2 tasks does not run: " + j.Name + "/1 is pending: " + cause
		s.Jobs = append(s.Jobs, j)
		s.Tasks = append(s.Tasks, status.TaskStatus{Name: j.Name + "/1", State: status.TaskPending, Reason: cause})
	}
	silent := "machine m-04 is silent"
	s.Jobs[0].Running, s.Jobs[0].Unknown, s.Jobs[0].Cause = 2, 1, silent
	s.Jobs[0].Reason = "1 of 3 tasks is unknown: search/web/0: " + silent
	s.Tasks[0].State, s.Tasks[0].Reason = status.TaskUnknown, silent
	return s
}

// thousands has 5,000 tasks in 500 jobs, of which 400 wait.
func thousands() *status.Status {
	s := five()
	s.Converged, s.Machines, s.Jobs, s.Tasks = false, machines(300), nil, nil
	for i := range 500 {
		j := status.JobStatus{Name: fmt.Sprintf("team-%d/job-%03d", i%7, i), Kind: schema.Service, Band: schema.BandFree, Desired: 10, Running: 10, Since: noon.Add(-time.Hour), Commit: s.Applied}
		if i >= 100 {
			j.Running, j.Pending, j.Cause = 4, 6, fmt.Sprintf("0 of 300 machines fit: %d lack RAM", 299+i%2)
			j.Reason = fmt.Sprintf("6 of 10 tasks do not run: %s/4 is pending: %s", j.Name, j.Cause)
		}
		s.Jobs = append(s.Jobs, j)
		for n := range 10 {
			s.Tasks = append(s.Tasks, status.TaskStatus{Name: fmt.Sprintf("%s/%d", j.Name, n), State: status.TaskRunning, Machine: "m-01"})
		}
	}
	return s
}

func TestStatus(t *testing.T) {
	t.Parallel()
	broken := sixty()
	broken.Source, broken.SourceHint, broken.SourceAt = "repository https://git.example/fleet.git: connection refused", "is it running?", noon.Add(-5*time.Minute)
	broken.Master = &status.Absence{Message: "another master leads", Since: noon}
	broken.Stale = []status.StalePackage{{Dir: "teams/x", Reason: "it does not compile", Next: "correct it", Diagnostics: []schema.Diagnostic{{Severity: schema.Error, Message: "typo", Field: "job.x"}}}}
	contained := five()
	contained.Jobs, contained.Tasks = contained.Jobs[:1], contained.Tasks[:3]
	contained.Jobs[0].Image = "docker.io/library/nginx:1.27@sha256:" + strings.Repeat("0123456789abcdef", 4)
	for name, tt := range map[string]struct {
		s *status.Status
		v View
	}{
		"contained":       {contained, View{Width: 80, Name: "search/web"}},
		"five":            {five(), View{Width: 80}},
		"five-tasks":      {five(), View{Width: 80, Tasks: true, Machines: true}},
		"sixty":           {sixty(), View{Width: 80}},
		"sixty-narrow":    {sixty(), View{Width: 40, Tasks: true}},
		"sixty-tasks":     {sixty(), View{Width: 80, Tasks: true}},
		"sixty-state":     {sixty(), View{Width: 120, Tasks: true, States: []status.TaskState{status.TaskUnknown, status.TaskPending}}},
		"sixty-wide":      {sixty(), View{All: true}},
		"sixty-short":     {sixty(), View{Width: 80, Lines: 30}},
		"sixty-pipe":      {sixty(), View{Lines: 30}},
		"sixty-colours":   {sixty(), View{Width: 80, Painter: true}},
		"broken":          {broken, View{Width: 80}},
		"thousands":       {thousands(), View{Width: 80, Lines: 30}},
		"nothing-applied": {&status.Status{Cell: "local", At: noon, Waits: []status.Wait{{Kind: status.WaitNoCommit, Message: "no commit has been seen yet"}}}, View{Width: 80}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Status(tt.s, tt.v)
			for line := range strings.Lines(got) {
				if n := Cells(strings.TrimSuffix(line, "\n")); tt.v.Width > 0 && n > tt.v.Width && !bool(tt.v.Painter) {
					t.Errorf("%d cells, want %d: %s", n, tt.v.Width, line)
				}
			}
			if n := strings.Count(got, "\n"); tt.v.Lines > 0 && n > tt.v.Lines {
				t.Errorf("%d lines, want %d", n, tt.v.Lines)
			}
			file := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (go test -update writes it):\n%s", file, diff)
			}
		})
	}
}

func TestFold(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		label, text string
		width       int
		want        string
	}{
		{"  ", "because: it  waits", 0, "  because: it  waits\n"},
		{"  ", "because: it  waits", 20, "  because: it  waits\n"},
		{"  ", "because: it waits for a machine", 20, "  because: it waits\n    for a machine\n"},
		{"12:00 fail     ", "a/web/0: exited with status 1", 30, "12:00 fail     a/web/0: exited\n  with status 1\n"},
	} {
		if got := Fold(tt.label, tt.text, tt.width); got != tt.want {
			t.Errorf("%q %q in %d: %q, want %q", tt.label, tt.text, tt.width, got, tt.want)
		}
	}
}
