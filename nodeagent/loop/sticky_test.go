package loop_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// A sticky directory outlives generations and agents, and goes a day after its
// task; not before, and not if the task has come back.
func TestStickyDirectoryGoes(t *testing.T) {
	bubble(t, func(s *story) {
		db := assignment("db", 0, 1, schema.Service)
		job := *db.Job
		job.Task.Sticky = schema.StickyHere
		db.Job = &job
		s.assign(db)
		s.until("u/db/0 g1 running")
		dir := filepath.Join(s.dir, nodeagent.StickyPath(db.Task))
		if err := os.MkdirAll(filepath.Join(dir, nodeagent.StickyData), 0o711); err != nil { // as the Runtime does
			s.t.Fatal(err)
		}
		there := func(want bool, when string) {
			s.t.Helper()
			rest()
			if _, err := os.Stat(dir); (err == nil) != want {
				s.t.Errorf("%s: the directory is there: %t, want %t", when, err == nil, want)
			}
		}
		s.assign()
		time.Sleep(nodeagent.KeepSticky - time.Hour)
		there(true, "almost a day after the task")
		s.restart()
		there(true, "for the next agent")
		db.Generation = 2
		s.assign(db)
		s.until("u/db/0 g2 running")
		time.Sleep(2 * time.Hour)
		there(true, "when the task is back")
		s.assign()
		s.restart()
		time.Sleep(nodeagent.KeepSticky - time.Hour)
		there(true, "almost a day after the task, again")
		time.Sleep(2 * time.Hour)
		there(false, "a day after the task")
		if _, err := os.Stat(filepath.Join(s.dir, "sticky")); err != nil {
			s.t.Errorf("the directory of all: %v", err)
		}
		if _, err := os.Stat(filepath.Dir(dir)); err == nil {
			s.t.Errorf("%s is left, and empty", filepath.Dir(dir))
		}
	})
}
