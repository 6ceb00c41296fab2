package reconciler

import "strings"

// jobOf returns the job, as user/job, of a task's user/job/index.
func jobOf(task string) string { return task[:max(strings.LastIndexByte(task, '/'), 0)] }
