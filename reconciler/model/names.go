package model

import "strings"

// JobOf returns the job, as user/job, of a task's user/job/index.
func JobOf(task string) string { return task[:max(strings.LastIndexByte(task, '/'), 0)] }
