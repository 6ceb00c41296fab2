package runtime_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/nodeagent/logfile"
	"github.com/musterhq/muster/nodeagent/runtime"
	"github.com/musterhq/muster/schema"
)

func TestLogLimits(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		disk int64
		logs *schema.Logs
		want logfile.Limits
		note bool
	}{
		"no limit of the disk":  {0, nil, logfile.DefaultLimits, false},
		"room for the defaults": {64 << 20, nil, logfile.DefaultLimits, false},
		"smaller files":         {8 << 20, nil, logfile.Limits{MaxBytes: 512 << 10, Files: 4}, false},
		"less than was asked":   {8 << 20, &schema.Logs{MaxBytes: 1 << 30, Files: 2}, logfile.Limits{MaxBytes: 1 << 20, Files: 2}, true},
		"what was asked":        {8 << 20, &schema.Logs{MaxBytes: 64 << 10, Files: 2}, logfile.Limits{MaxBytes: 64 << 10, Files: 2}, false},
		"fewer files":           {1 << 20, &schema.Logs{MaxBytes: 64 << 10, Files: 100}, logfile.Limits{MaxBytes: 64 << 10, Files: 4}, true},
		"the least":             {4096, nil, logfile.Limits{MaxBytes: 64 << 10, Files: 2}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			task := &schema.TaskSpec{Logs: tt.logs, Resources: schema.TaskResources{Resources: schema.Resources{DiskBytes: tt.disk}}}
			if got, note := runtime.LogLimits(task); got != tt.want || (note != "") != tt.note {
				t.Errorf("%+v, %q, want %+v", got, note, tt.want)
			}
		})
	}
}

// TestLogsWithinDisk: what a task says takes half of its disk at most, whatever it says.
func TestLogsWithinDisk(t *testing.T) {
	t.Parallel()
	testLogsWithinDisk(t, newMachine(t))
}

func testLogsWithinDisk(t *testing.T, m *machine) {
	t.Helper()
	a := assignment(0, "/bin/sh", "-c", `i=0; while [ $i -lt 64 ]; do head -c 65535 /dev/zero | tr '\0' x; echo; i=$((i+1)); done; echo last`)
	const disk = 1 << 20
	a.Job.Task.Resources.DiskBytes = disk
	p, dir := m.start(a)
	if e := wait(t, p); e.Code != 0 {
		t.Fatal(e)
	}
	sum, ends := int64(0), false
	files, err := filepath.Glob(filepath.Join(dir, "std*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sum += int64(len(b))
		ends = ends || strings.HasSuffix(string(b), "last\n")
	}
	if sum < disk/8 || sum > disk/2+64<<10 || !ends {
		t.Errorf("%d bytes in %v, the last line among them: %t; want at most half of %d", sum, files, ends, disk)
	}
}
