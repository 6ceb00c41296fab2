package loop

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/musterhq/muster/nodeagent/logfile"
	"github.com/musterhq/muster/schema"
)

// logStatusEvery is the time between two looks at how a task's logs are written. What is
// wrong with one is in the log itself too, as far as the disk takes it.
const logStatusEvery = 5 * time.Second

// watchLogs reports what is wrong with the logs in dir when that changes, until ctx
// ends. It reads in the caller's goroutine: the disk may be slow.
func watchLogs(ctx context.Context, dir string, report func(note string)) {
	ticker := time.NewTicker(logStatusEvery)
	defer ticker.Stop()
	reported := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if note := logNote(dir, time.Now()); note != reported {
			reported = note
			report(note)
		}
	}
}

// logNote says what is wrong with the logs in dir; "" if nothing is, or if that
// cannot be found out.
func logNote(dir string, now time.Time) string {
	list, err := logfile.ReadStatus(dir)
	if err != nil {
		return ""
	}
	var notes []string
	for i, name := range []schema.LogStream{schema.Stdout, schema.Stderr}[:min(len(list), 2)] {
		s := list[i]
		if s.Bytes > 0 {
			notes = append(notes, fmt.Sprintf("%d bytes of its %s were dropped: %s", s.Bytes, name, s.Reason))
		}
		if !s.Stalled.IsZero() {
			notes = append(notes, fmt.Sprintf("it waits for the disk, which has not taken its %s for %s", name, now.Sub(s.Stalled).Round(logStatusEvery)))
		}
	}
	return strings.Join(notes, "; ")
}
