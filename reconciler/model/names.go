package model

import (
	"cmp"
	"strings"
)

// JobOf returns the job, as user/job, of a task's user/job/index.
func JobOf(task string) string { return task[:max(strings.LastIndexByte(task, '/'), 0)] }

// CompareNames orders the names of jobs (user/job), tasks (user/job/index) or machines as
// lists have them: by user, by job, and by the number of a task.
func CompareNames(a, b string) int {
	userA, restA, _ := strings.Cut(a, "/")
	userB, restB, _ := strings.Cut(b, "/")
	jobA, indexA, _ := strings.Cut(restA, "/")
	jobB, indexB, _ := strings.Cut(restB, "/")
	// A number without leading zeros is greater if it is longer.
	return cmp.Or(cmp.Compare(userA, userB), cmp.Compare(jobA, jobB), cmp.Compare(len(indexA), len(indexB)), cmp.Compare(indexA, indexB))
}
