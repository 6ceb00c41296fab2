package loop_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/loop"
	"github.com/musterhq/muster/schema"
)

// TestIdentity: an agent has one id for as long as its state directory is there, and
// one of its own where that was copied to another machine.
func TestIdentity(t *testing.T) {
	bubble(t, func(s *story) {
		first := s.agent.Info().ID
		if len(first) < 20 {
			s.t.Fatalf("id %q", first)
		}
		restart := func() string {
			s.restart()
			return s.agent.Info().ID
		}
		spoil := func(name, content string) {
			if err := os.WriteFile(filepath.Join(s.dir, name), []byte(content), 0o600); err != nil {
				s.t.Fatal(err)
			}
		}
		for _, content := range []string{"", "{", "{}", `{"id":""}`, "\x00\x00\x00"} {
			for _, name := range []string{"machine.json", "machine-copy.json"} {
				spoil(name, content)
				if is := restart(); is != first {
					s.t.Fatalf("%s damaged as %q: id %s, want %s", name, content, is, first)
				}
			}
		}
		if err := os.Remove(filepath.Join(s.dir, "machine.json")); err != nil {
			s.t.Fatal(err)
		}
		if is := restart(); is != first {
			s.t.Errorf("one of the files is lost: id %s, want %s", is, first)
		}
		s.kernel.hardware = "board-1"
		for range 2 {
			if restart() != first {
				s.t.Error("another id since the hardware is known")
			}
		}
		s.kernel.hardware = "" // by an agent that may not look
		if restart() != first {
			s.t.Error("another id since the hardware is not known")
		}
		s.kernel.hardware = "board-2"
		second := restart()
		if second == first || restart() != second {
			s.t.Errorf("copied to another machine: id %s, then %s; was %s", second, s.agent.Info().ID, first)
		}
		spoil("machine.json", "")
		spoil("machine-copy.json", "")
		if third := restart(); third == second || third == "" || restart() != third {
			s.t.Errorf("both files are damaged: id %s, then %s; was %s", third, s.agent.Info().ID, second)
		}
	})
}

// TestCopied: no agent starts on a copy of a state directory, whose tasks run, until
// the machine has been restarted; one that was moved is no copy.
func TestCopied(t *testing.T) {
	bubble(t, func(s *story) {
		s.assign(mix()...)
		all := []string{"inside/0", "job/0", "ledger/0", "logs/0", "pair/0", "web/0"}
		s.runs(all...)
		s.agent.stop()
		s.agent = nil
		copied := filepath.Join(s.t.TempDir(), "copy")
		if err := os.CopyFS(copied, os.DirFS(s.dir)); err != nil {
			s.t.Fatal(err)
		}
		if _, err := loop.New(s.t.Context(), config(s.kernel, copied, s.crash, nil)); !errors.Is(err, loop.ErrCopied) || !strings.Contains(err.Error(), s.dir) {
			s.t.Fatalf("on a copy: %v", err)
		}
		s.runs(all...)
		s.kernel.boot = "another"
		l, err := loop.New(s.t.Context(), config(s.kernel, copied, s.crash, nil))
		if err != nil {
			s.t.Fatalf("on a copy, after the machine was restarted: %v", err)
		}
		ended, cancel := context.WithCancel(s.t.Context())
		cancel()
		if err := l.Run(ended); err != nil {
			s.t.Error(err)
		}
		moved := filepath.Join(s.t.TempDir(), "moved")
		if err := os.Rename(copied, moved); err != nil {
			s.t.Fatal(err)
		}
		if _, err := loop.New(s.t.Context(), config(s.kernel, moved, s.crash, nil)); err != nil {
			s.t.Errorf("on one that was moved: %v", err)
		}
	})
}

// TestRefused: an agent that was refused its name starts nothing, whatever it was
// assigned before, neither does the next on its state directory; what runs goes on.
// One that was welcomed starts as any other that has just begun.
func TestRefused(t *testing.T) {
	for _, how := range []string{"refused", "copied"} {
		for _, end := range []string{"assigned", "no view"} {
			t.Run(how+", "+end, func(t *testing.T) {
				bubble(t, func(s *story) { s.refused(how, end) })
			})
		}
	}
}

func (s *story) refused(how, end string) {
	s.kernel.hardware = "board-1"
	s.restart()
	s.assign(mix()...)
	s.runs("inside/0", "job/0", "ledger/0", "logs/0", "pair/0", "web/0")
	if how == "copied" {
		s.kernel.hardware = "board-2"
		s.restart()
	} else if err := s.agent.Refused(); err != nil {
		s.t.Fatal(err)
	}
	for _, task := range []string{"web/0", "ledger/0"} {
		s.kernel.exit(task, schema.Exit{Code: 3})
	}
	left := []string{"inside/0", "job/0", "logs/0", "pair/0"}
	time.Sleep(time.Hour)
	s.runs(left...)
	for _, e := range s.agent.Report().Tasks {
		if runs := e.State == schema.Running; !runs && !strings.Contains(e.Note, "another agent has the name of this machine") {
			s.t.Errorf("%s: note %q", line(e), e.Note)
		}
	}
	s.restart()
	time.Sleep(time.Hour)
	s.runs(left...)
	s.version++
	if err := s.agent.Welcome(s.epoch + 1); err != nil {
		s.t.Fatal(err)
	}
	s.runs(left...)
	if end == "no view" {
		time.Sleep(nodeagent.FirstView)
		s.runs("inside/0", "job/0", "logs/0", "pair/0", "web/0")
	}
	if err := s.agent.Assign(schema.View{Epoch: s.epoch + 1, Version: s.version, Assignments: mix()}); err != nil {
		s.t.Fatal(err)
	}
	s.runs("inside/0", "job/0", "ledger/0", "logs/0", "pair/0", "web/0")
}
