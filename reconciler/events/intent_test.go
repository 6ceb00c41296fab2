package events

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/schema"
)

var errLost = errors.New("the store does not answer")

// logged returns what a log that is opened in dir now holds, "?" before what it
// doubts. The log that was open there before is as one whose process was killed.
func logged(t *testing.T, dir string) []string {
	t.Helper()
	return messages(since(t, open(t, Config{Dir: dir}), schema.EventQuery{}))
}

func messages(records []schema.EventRecord) []string {
	var got []string
	for _, r := range records {
		message := r.Message
		if strings.HasPrefix(message, "it is not known") {
			message = "?"
		}
		got = append(got, message)
	}
	return got
}

func TestIntend(t *testing.T) {
	t.Parallel()
	one, two := []schema.Event{event(1)}, []schema.Event{event(2), event(3)}
	later := []schema.Event{event(1)}
	later[0].At = epoch.Add(time.Minute).In(time.FixedZone("east", 3600))
	for name, tc := range map[string]struct {
		do   func(*Log)
		want []string
	}{
		"killed before it was stored": {
			func(l *Log) { l.Append([]schema.Event{event(0)}); l.Intend(two) },
			[]string{"started 0", "?", "started 2", "started 3"},
		},
		"killed when it was stored": {
			func(l *Log) { l.Intend(two); l.Settle(nil) },
			[]string{"?", "started 2", "started 3"},
		},
		"killed when it was logged": {
			func(l *Log) { l.Intend(later); l.Settle(nil); l.disk.Lock(); l.flush(); l.disk.Unlock() },
			[]string{"started 1"},
		},
		"the next makes sure of what was logged": {
			func(l *Log) { l.Intend(two); l.Settle(nil); l.Intend(one) },
			[]string{"started 2", "started 3", "?", "started 1"},
		},
		"a shorter one leaves nothing of a longer": {
			func(l *Log) { l.Intend(two); l.Settle(nil); l.Intend(nil) },
			[]string{"started 2", "started 3"},
		},
		"the store does not answer": {
			func(l *Log) { l.Intend(one); l.Settle(errLost); shutNow(l) },
			[]string{"?", "started 1"},
		},
		"nor when it is tried again": {
			func(l *Log) {
				l.Intend(one)
				l.Settle(errLost)
				l.Intend(later)
				l.Settle(errLost)
				l.Append([]schema.Event{event(4)})
			},
			[]string{"?", "started 1", "?", "started 1"},
		},
		"until it does": {
			func(l *Log) {
				for _, err := range []error{errLost, nil, errLost} {
					l.Intend(one)
					l.Settle(err)
				}
				shutNow(l)
			},
			[]string{"?", "started 1", "started 1", "?", "started 1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			tc.do(open(t, Config{Dir: dir}))
			if diff := cmp.Diff(tc.want, logged(t, dir)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func shutNow(l *Log) { _ = l.close() }

// TestIntendTwice: what was logged when the store failed once is not logged again when
// it fails the same way, in the process that logged it.
func TestIntendTwice(t *testing.T) {
	t.Parallel()
	l := open(t, Config{Dir: t.TempDir()})
	for i := range 3 {
		e := event(1)
		e.At = epoch.Add(time.Duration(i) * time.Minute)
		l.Intend([]schema.Event{e})
		l.Settle(errLost)
	}
	if diff := cmp.Diff([]string{"?", "started 1"}, messages(since(t, l, schema.EventQuery{}))); diff != "" {
		t.Error(diff)
	}
}

// TestIntendTorn ends the file at each of its bytes: what was not written whole
// was not acted on.
func TestIntendTorn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open(t, Config{Dir: dir}).Intend([]schema.Event{event(1), event(2)})
	text, err := os.ReadFile(filepath.Join(dir, intentFile))
	if err != nil {
		t.Fatal(err)
	}
	for n := range text {
		torn := t.TempDir()
		if err := os.WriteFile(filepath.Join(torn, intentFile), text[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		want := []string(nil)
		for i := range max(0, strings.Count(string(text[:n]), "\n")-1) {
			want = append(want, event(i+1).Message)
		}
		if want != nil {
			want = append([]string{"?"}, want...)
		}
		if diff := cmp.Diff(want, logged(t, torn)); diff != "" {
			t.Errorf("%q: %s", text[:n], diff)
		}
	}
}

func BenchmarkIntend(b *testing.B) {
	l := open(b, Config{Dir: b.TempDir()})
	var events []schema.Event
	for i := range 10 {
		events = append(events, event(i))
	}
	for b.Loop() {
		l.Intend(events)
		l.Settle(nil)
	}
	shut(b, l)
}
