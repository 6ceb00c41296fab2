package schema

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
)

// AllJobs is the name of the suspension that a whole cell is under.
const AllJobs = "all"

// MaxReason is how long the reason for a suspension or a restart may be, in bytes.
const MaxReason = 500

// Suspension says that commits leave a job, or all jobs of a cell, as they are, at the
// request of an operator. It is stored until it is ended, or its time is over.
type Suspension struct {
	// Name is AllJobs, or a job's or an alloc set's user/job.
	Name   string `json:"name"`
	Reason string `json:"reason"`
	// By is who asked for it: the name in a certificate, or the user of the
	// master's machine, as far as that is known.
	By    string    `json:"by"`
	Since time.Time `json:"since"`
	// Until is when it ends by itself; zero if never.
	Until time.Time `json:"until,omitzero"`
}

// Resumed is what has become of a suspension that somebody ended.
type Resumed struct {
	Was *Suspension `json:"was"` // nil if there was none
	// Still are the names of the suspensions that last and keep some of the same
	// suspended, sorted.
	Still []string `json:"still"`
}

// All reports whether it is the one of the whole cell.
func (s *Suspension) All() bool { return s.Name == AllJobs }

// String says who suspended since when, and why.
func (s *Suspension) String() string {
	until := ""
	if !s.Until.IsZero() {
		until = " until " + s.Until.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("suspended by %s since %s%s: %s", s.By, s.Since.UTC().Format(time.RFC3339), until, s.Reason)
}

// CheckReason errs unless a text says in one line why something is suspended, or
// restarted.
func CheckReason(reason string) error {
	switch {
	case strings.TrimSpace(reason) == "":
		return errors.New("no reason is given")
	case len(reason) > MaxReason:
		return fmt.Errorf("the reason has %d bytes: want at most %d", len(reason), MaxReason)
	case strings.ContainsFunc(reason, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("the reason %.60q is not one line of text", reason)
	}
	return nil
}
