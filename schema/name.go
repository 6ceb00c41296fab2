package schema

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// MaxNameLen is the longest a user, job, cell, machine or port name may be,
// in bytes: a DNS label (RFC 1035 §2.3.4), since a BNS name is served by DNS.
const MaxNameLen = 63

// JobName is the full name of a job: cell/user/job. The path of the file
// that declares it is no part of it, so moving a file changes nothing.
type JobName struct {
	Cell string `json:"cell"`
	User string `json:"user"`
	Job  string `json:"job"`
}

// String returns the BNS name, cell/user/job.
func (n JobName) String() string { return n.Cell + "/" + n.User + "/" + n.Job }

// Short returns user/job, the form used where the cell is known.
func (n JobName) Short() string { return n.User + "/" + n.Job }

// Compare orders names by cell, user and job.
func (n JobName) Compare(o JobName) int {
	// cmp.Or would compare all parts, and names are what is sorted most.
	if c := strings.Compare(n.Cell, o.Cell); c != 0 {
		return c
	}
	if c := strings.Compare(n.User, o.User); c != 0 {
		return c
	}
	return strings.Compare(n.Job, o.Job)
}

// Task returns the name of the task of n with the given index.
func (n JobName) Task(index int) TaskName { return TaskName{JobName: n, Index: index} }

// MarshalText returns the BNS name.
func (n JobName) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText parses a BNS name.
func (n *JobName) UnmarshalText(b []byte) error {
	v, err := ParseJobName(string(b))
	if err != nil {
		return err
	}
	*n = v
	return nil
}

// ParseJobName parses cell/user/job. It errs when a part is missing or is not
// a valid name.
func ParseJobName(s string) (JobName, error) {
	parts := strings.Split(s, "/")
	if len(parts) != 3 {
		return JobName{}, fmt.Errorf("job name %q: want cell/user/job", s)
	}
	for _, p := range parts {
		if err := CheckName(p); err != nil {
			return JobName{}, fmt.Errorf("job name %q: %w", s, err)
		}
	}
	return JobName{Cell: parts[0], User: parts[1], Job: parts[2]}, nil
}

// TaskName identifies a task: cell/user/job/index. Index counts from 0.
type TaskName struct {
	JobName
	Index int `json:"index"`
}

// String returns the BNS name, cell/user/job/index.
func (n TaskName) String() string { return n.JobName.String() + "/" + strconv.Itoa(n.Index) }

// Short returns user/job/index.
func (n TaskName) Short() string { return n.JobName.Short() + "/" + strconv.Itoa(n.Index) }

// Compare orders names by job and index.
func (n TaskName) Compare(o TaskName) int {
	return cmp.Or(n.JobName.Compare(o.JobName), cmp.Compare(n.Index, o.Index))
}

// MarshalText returns the BNS name.
func (n TaskName) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText parses a BNS name.
func (n *TaskName) UnmarshalText(b []byte) error {
	v, err := ParseTaskName(string(b))
	if err != nil {
		return err
	}
	*n = v
	return nil
}

// ParseTaskName parses cell/user/job/index. It errs when a part is missing or
// is not a valid name, and when the index is no plain decimal number.
func ParseTaskName(s string) (TaskName, error) {
	i := strings.LastIndexByte(s, '/')
	if i < 0 {
		return TaskName{}, fmt.Errorf("task name %q: want cell/user/job/index", s)
	}
	job, err := ParseJobName(s[:i])
	if err != nil {
		return TaskName{}, fmt.Errorf("task name %q: want cell/user/job/index: %w", s, err)
	}
	index, err := ParseIndex(s[i+1:])
	if err != nil {
		return TaskName{}, fmt.Errorf("task name %q: %w", s, err)
	}
	return job.Task(index), nil
}

// ParseIndex parses a task index: decimal digits, no sign, no leading zero.
func ParseIndex(s string) (int, error) {
	i, err := strconv.Atoi(s)
	if err != nil || i < 0 || strconv.Itoa(i) != s {
		return 0, fmt.Errorf("task index %q: want a number from 0 without leading zeros", s)
	}
	return i, nil
}

// CheckName errs unless s is a name: 1 to MaxNameLen lower-case letters,
// digits and inner hyphens, the grammar of a DNS label.
func CheckName(s string) error {
	if s == "" {
		return fmt.Errorf("empty name: want lower-case letters, digits and inner hyphens")
	}
	if len(s) > MaxNameLen {
		return fmt.Errorf("name %.20q… has %d bytes: want at most %d", s, len(s), MaxNameLen)
	}
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alnum && (c != '-' || i == 0 || i == len(s)-1) {
			return fmt.Errorf("name %q: want lower-case letters, digits and inner hyphens", s)
		}
	}
	return nil
}
