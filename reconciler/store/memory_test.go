package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/reconciler/model"
)

// script is a run of commits; the second has pieces, the third drops them.
func script() [][]model.Write {
	return [][]model.Write{
		{put("a", "1"), put("b", "1")},
		{{Key: "big", Value: noise(1, 2<<20)}, put("a", "2")},
		{put("big", "small"), del("b")},
		{put("c", "4")},
	}
}

// A master that dies at any transaction, before or after it took effect,
// leaves the documents of a prefix of its commits; the next goes on from there
// and no piece stays behind.
func TestCrashAnywhere(t *testing.T) {
	t.Parallel()
	whole := NewMemory()
	runScript(t, whole, 0)
	for n := 1; n <= whole.Transactions(); n++ {
		for _, fate := range []Fate{Refused, Forgotten} {
			t.Run(fmt.Sprintf("%d/%d", n, fate), func(t *testing.T) {
				t.Parallel()
				m := NewMemory()
				m.Hook(func(i int) Fate {
					if i == n {
						return fate
					}
					return Taken
				})
				acked := runScript(t, m, n)
				m.Hook(nil)
				s := leader(t, memoryMedium{m}, "next")
				at := prefixOf(load(t, s))
				if at != acked && at != acked+1 {
					t.Fatalf("state of %d commits, %d were acknowledged", at, acked)
				}
				for _, writes := range script()[at:] {
					commit(t, s, writes...)
				}
				if at = prefixOf(load(t, s)); at != len(script()) {
					t.Errorf("state of %d commits after going on", at)
				}
				commit(t, s, put("c", "4"))
				if got := storedPieces(t, s); got != 0 {
					t.Errorf("%d pieces left behind", got)
				}
			})
		}
	}
}

// runScript commits the script until something fails, which is at transaction
// n, and returns how many commits were acknowledged.
func runScript(t *testing.T, m *Memory, n int) (acked int) {
	t.Helper()
	s, err := m.Open("c")
	if err == nil {
		err = s.Campaign(t.Context(), "first")
	}
	if err == nil {
		_, err = s.Load(t.Context())
	}
	for _, writes := range script() {
		if err == nil && s.leading() {
			if err = s.Commit(t.Context(), writes); err == nil {
				acked++
			}
		}
	}
	if n == 0 && err != nil || err != nil && !errors.Is(err, ErrInjected) {
		t.Fatalf("script: %v", err)
	}
	return acked
}

// prefixOf returns after how many commits of the script the documents are as
// given, or -1.
func prefixOf(docs map[string][]byte) int {
	ref := map[string][]byte{}
	for i, writes := range append(script(), nil) {
		if maps.EqualFunc(ref, docs, bytes.Equal) {
			return i
		}
		for _, w := range writes {
			ref[w.Key] = w.Value
			if w.Value == nil {
				delete(ref, w.Key)
			}
		}
	}
	return -1
}

// Two masters take turns and fail at random: what is stored is what was
// acknowledged, in order, whoever wrote it, and the last Campaign wins.
func TestTwoMasters(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := NewMemory()
		fate := Taken
		m.Hook(func(int) Fate { return fate })
		var stores [2]*Store
		for i := range stores {
			s, err := m.Open("c")
			if err != nil {
				t.Fatal(err)
			}
			stores[i] = s
		}
		want, leads := map[string]string{}, -1
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			i := rapid.IntRange(0, 1).Draw(t, "master")
			fate = rapid.SampledFrom([]Fate{Taken, Taken, Taken, Refused, Forgotten}).Draw(t, "fate")
			if rapid.IntRange(0, 2).Draw(t, "what") == 0 {
				err := stores[i].Campaign(t.Context(), "x")
				if (err == nil) != (fate == Taken) {
					t.Fatalf("Campaign: %v at fate %d", err, fate)
				}
				switch {
				case fate == Taken:
					leads = i
				case fate == Forgotten, leads == i:
					leads = -1
				}
				continue
			}
			key, value := fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "key")), fmt.Sprint(rapid.Int().Draw(t, "value"))
			err := stores[i].Commit(t.Context(), []model.Write{put(key, value)})
			if (err == nil) != (leads == i && fate == Taken) {
				t.Fatalf("Commit of %d while %d leads, fate %d: %v", i, leads, fate, err)
			}
			if leads == i && fate != Refused {
				want[key] = value
			}
			if leads == i && err != nil {
				leads = -1
			}
			fate = Taken
			docs, err := stores[i].Load(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for k, v := range docs {
				got[k] = string(v)
			}
			delete(got, identityKey)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("documents: (-want +got)\n%s", diff)
			}
		}
	})
}
