package runtime

import (
	"fmt"

	"github.com/musterhq/muster/nodeagent/logfile"
	"github.com/musterhq/muster/schema"
)

// The least that a log is made: a file of less holds no long line, and one is begun while
// another is full.
const (
	leastLogBytes = 64 << 10
	leastLogFiles = 2
)

// logLimits returns how much is kept of each output of a run: both together take at most
// half of what the task may have on disk. No quota of the file system holds logs, since it
// is the keeper that writes them; and what a task says shall not end it. note says that a
// job gets less than it asks for, "" if not.
func logLimits(t *schema.TaskSpec) (l logfile.Limits, note string) {
	l = logfile.DefaultLimits
	if t.Logs != nil {
		l = logfile.Limits{MaxBytes: t.Logs.MaxBytes, Files: t.Logs.Files}
	}
	disk := t.Resources.DiskBytes
	if disk <= 0 || l.MaxBytes*int64(l.Files) <= disk/4 {
		return l, ""
	}
	each := disk / 4 // of stdout, and of stderr
	l.Files = int(max(min(int64(l.Files), each/leastLogBytes), leastLogFiles))
	l.MaxBytes = min(l.MaxBytes, max(each/int64(l.Files), leastLogBytes))
	if t.Logs != nil {
		note = fmt.Sprintf("task.logs: %d files of %d bytes are kept, and not %d of %d: stdout and stderr take at most half of diskBytes", l.Files, l.MaxBytes, t.Logs.Files, t.Logs.MaxBytes)
	}
	return l, note
}
