package loop_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
)

// withFiles is an assignment whose task has files that change in place.
func withFiles(files map[string]schema.TaskFile) schema.Assignment {
	a := assignment("web", 0, 1, schema.Service)
	a.Job.Task.Files = files
	a.Data = schema.DigestOf(a.Job)
	return a
}

func (s *story) renewed() (signals []string, files map[string]string) {
	s.kernel.mu.Lock()
	defer s.kernel.mu.Unlock()
	for _, p := range s.kernel.procs {
		if p.is.Exit == nil && p.files != nil {
			return slices.Clone(p.signals), maps.Clone(p.files)
		}
	}
	return nil, nil
}

// TestRenew: a running task gets the new content of its files, and one signal for each
// change, also when the agent is restarted.
func TestRenew(t *testing.T) {
	bubble(t, func(s *story) {
		file := func(content string) schema.TaskFile {
			return schema.TaskFile{Content: content, OnChange: schema.ChangeSignal, Signal: "SIGUSR1"}
		}
		quiet := schema.TaskFile{Content: "1", OnChange: schema.ChangeNone}
		s.assign(withFiles(map[string]schema.TaskFile{"a": file("1"), "b": file("1"), "quiet": quiet, "fixed": {Content: "1"}}))
		s.until("u/web/0 g1 running")
		rest()
		check := func(when string, want []string, files map[string]string) {
			s.t.Helper()
			rest()
			signals, got := s.renewed()
			if !slices.Equal(signals, want) || !maps.Equal(got, files) {
				s.t.Errorf("%s: signals %q, files %v; want %q, %v", when, signals, got, want, files)
			}
		}
		check("at the start", nil, nil)
		s.assign(withFiles(map[string]schema.TaskFile{"a": file("2"), "b": file("2"), "quiet": quiet, "fixed": {Content: "1"}}))
		after := map[string]string{"files/a": "2", "files/b": "2"}
		check("two files, one signal", []string{"SIGUSR1"}, after)
		s.restart()
		check("a new agent", []string{"SIGUSR1"}, after)
		s.kernel.set(func(k *kernel) {
			for _, p := range k.procs {
				if p.renewals > 1 {
					s.t.Errorf("%d renewals for one change", p.renewals)
				}
			}
		})
		quiet.Content = "2"
		s.kernel.set(func(k *kernel) { k.stiff = true })
		s.assign(withFiles(map[string]schema.TaskFile{"a": file("2"), "b": file("3"), "quiet": quiet, "fixed": {Content: "1"}}))
		check("no room", []string{"SIGUSR1"}, after)
		if note := s.note("web"); note != "no room for the file" {
			s.t.Errorf("note %q", note)
		}
		s.restart()
		s.kernel.set(func(k *kernel) { k.stiff = false })
		time.Sleep(2 * time.Second)
		check("room again", []string{"SIGUSR1", "SIGUSR1"}, map[string]string{"files/a": "2", "files/b": "3", "files/quiet": "2"})
		s.assign(withFiles(map[string]schema.TaskFile{"a": file("2"), "quiet": quiet, "fixed": {Content: "1"}}))
		check("a file is gone", []string{"SIGUSR1", "SIGUSR1"}, map[string]string{"files/a": "2", "files/quiet": "2"})
		if n := len(s.kernel.starts); n != 1 {
			s.t.Errorf("%d tasks were started", n)
		}
	})
}

// renewWeb gives the task of web a new file, and waits until it has that.
func (s *story) renewWeb(web *schema.Assignment, others ...schema.Assignment) {
	next := withFiles(map[string]schema.TaskFile{"a": {Content: "2", OnChange: schema.ChangeSignal}})
	web.Job, web.Data = next.Job, next.Data
	s.assign(append(others, *web)...)
	// A signal is sent again only if the agent was killed before it had written that down.
	var signals []string
	if !s.settles(func() bool {
		var files map[string]string
		signals, files = s.renewed()
		return files["files/a"] == "2"
	}) {
		s.t.Error("the task has never got its new file")
	}
	if n := len(signals); n < 1 || n > 1+s.lives {
		s.t.Errorf("%d signals, in %d lives of the agent", n, s.lives)
	}
}
