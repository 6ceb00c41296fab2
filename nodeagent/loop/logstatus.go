package loop

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/logfile"
	"github.com/musterhq/muster/schema"
)

// logStatusEvery is the time between two looks at how a task's logs are written. What is
// wrong with one is in the log itself too, as far as the disk takes it.
const logStatusEvery = 5 * time.Second

// watchLogs passes the agent what is wrong with the logs of running tasks when that
// changes, until ctx ends. It reads in the caller's goroutine: the disk may be slow.
func (l *Loop) watchLogs(ctx context.Context) {
	ticker := time.NewTicker(logStatusEvery)
	defer ticker.Stop()
	reported := map[nodeagent.Running]string{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var dirs map[nodeagent.Running]string
		if l.ask(ctx, func() { dirs = l.owner.logDirs() }) != nil {
			return
		}
		notes, changed := map[nodeagent.Running]string{}, map[nodeagent.Running]string{}
		for r, dir := range dirs {
			note := logNote(dir, time.Now())
			if note != reported[r] {
				changed[r] = note
			}
			if note != "" {
				notes[r] = note
			}
		}
		if reported = notes; len(changed) == 0 {
			continue
		}
		l.send(ctx, func() {
			for r, note := range changed {
				l.owner.agent.Logged(r, note)
			}
		})
	}
}

// logDirs returns the directories with the logs of what runs.
func (o *owner) logDirs() map[nodeagent.Running]string {
	dirs := make(map[nodeagent.Running]string, len(o.processes))
	for _, r := range o.agent.Alive() {
		if o.processes[r.TaskRef] != nil {
			dirs[r] = incarnationDir(o.disk.dir(r.Task, r.Generation), r.Incarnation)
		}
	}
	return dirs
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
