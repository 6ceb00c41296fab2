package store

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tended counts how often its disk is looked after.
type tended struct {
	backend
	looks *atomic.Int64
}

func (t tended) defragment(context.Context, time.Time) (string, error) {
	t.looks.Add(1)
	return "", nil
}

// A snapshot is taken when the newest is so old, or is of a time that is still to
// come because a clock was wrong, and never when none are wanted. What is kept is
// what was taken last, whatever clock named the others.
func TestMaintain(t *testing.T) {
	t.Parallel()
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // of a synctest bubble
	name := func(at time.Duration) string { return "c-" + start.Add(at).Format(snapshotTime) + snapshotSuffix }
	for _, tt := range []struct {
		what   string
		have   []string
		every  time.Duration
		during time.Duration
		want   []string
		looks  int64
	}{
		{"none are wanted", nil, 0, time.Hour, nil, 61},
		{"none are wanted, and one is of tomorrow", []string{name(24 * time.Hour)}, 0, time.Hour, []string{name(24 * time.Hour)}, 61},
		{"none is there", nil, time.Hour, 30 * time.Minute, []string{name(0)}, 31},
		{"the newest is recent", []string{name(-time.Minute)}, time.Hour, 30 * time.Minute, []string{name(-time.Minute)}, 31},
		{"the newest grows old", []string{name(-40 * time.Minute)}, time.Hour, 30 * time.Minute, []string{name(-40 * time.Minute), name(20 * time.Minute)}, 31},
		{"more often than it is looked", []string{name(-time.Hour)}, 2 * time.Second, 9 * time.Second, []string{name(-time.Hour), name(0)}, 5},
		{"the newest is of tomorrow", []string{name(-3 * time.Hour), name(24 * time.Hour)}, time.Hour, 30 * time.Minute, []string{name(-3 * time.Hour), name(0)}, 31},
		{"all are of tomorrow", []string{name(24 * time.Hour), name(25 * time.Hour)}, time.Hour, 30 * time.Minute, []string{name(0), name(25 * time.Hour)}, 31},
		{"other files", []string{"c-new.snapshot", "d-20300101T000000Z.snapshot", "c-20300101T000000Z", "c-d-20300101T000000Z.snapshot"}, time.Hour, time.Minute, []string{name(0), "c-20300101T000000Z", "c-d-20300101T000000Z.snapshot", "c-new.snapshot", "d-20300101T000000Z.snapshot"}, 2},
	} {
		t.Run(tt.what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, file := range tt.have {
				if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Test(t, func(t *testing.T) {
				s := leader(t, memoryMedium{NewMemory()}, "one")
				var looks atomic.Int64
				s.be = tended{s.be, &looks}
				ctx, cancel := context.WithTimeout(t.Context(), tt.during+time.Millisecond)
				defer cancel()
				done := make(chan struct{})
				go func() {
					defer close(done)
					s.Maintain(ctx, Upkeep{Dir: dir, Every: tt.every, Keep: 2, Note: func(what, message string, err error) {
						if err != nil {
							t.Errorf("%s: %v", what, err)
						}
					}})
				}()
				<-done
				if looks.Load() != tt.looks {
					t.Errorf("looked %d times, want %d", looks.Load(), tt.looks)
				}
			})
			var got []string
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				got = append(got, e.Name())
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("files (-want +got)\n%s", d)
			}
		})
	}
}
