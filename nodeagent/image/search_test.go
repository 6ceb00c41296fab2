package image

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/schema"
)

// answers are machines that give nothing, and a master that counts questions.
type answers struct {
	answer schema.SourceAnswer
	get    PeerAnswer
	grows  bool          // Moved, with each answer
	leaves time.Duration // after which no master answers; 0: none does
	turn   time.Duration // after which one that is stalled may ask the registry
	blobs  time.Duration // likewise, for the blobs that are asked for, stalled or not; 0: the master is of the release before

	mu    sync.Mutex // guards what follows
	began time.Time
	asked []schema.SourceQuestion
}

// Sources implements Peers.
func (a *answers) Sources(_ context.Context, q schema.SourceQuestion) (schema.SourceAnswer, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.asked) == 0 {
		a.began = time.Now()
	}
	a.asked = append(a.asked, q)
	if time.Since(a.began) >= a.leaves {
		return schema.SourceAnswer{}, errors.New("no master is there")
	}
	out := a.answer
	out.Registry = q.Stalled && time.Since(a.began) >= a.turn
	if a.blobs > 0 {
		out.ByBlob, out.Registry = true, true // which is not for this agent
		for _, f := range q.Fetches {
			if time.Since(a.began) >= a.blobs {
				out.Fetch = append(out.Fetch, f.Blob)
			}
		}
	}
	return out, nil
}

// Get implements Peers.
func (a *answers) Get(_ context.Context, _ schema.SourcePeer, b PeerBlob) (PeerAnswer, error) {
	if b.Wait {
		time.Sleep(2 * time.Second)
	}
	if a.grows {
		a.get.Moved++
	}
	return a.get, nil
}

func newSearch(a *answers) *search {
	return (&search{peers: a, content: "sha256:c", now: time.Now, slow: slowTime}).begin()
}

// While a long blob comes the machine goes on asking, and says when it has given up.
func TestSearchKeeps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &answers{leaves: time.Hour}
		stop := newSearch(a).keep(t.Context())
		time.Sleep(21 * time.Second)
		stop(errors.New("no"))
		if n := len(a.asked); n != 5 || !a.asked[4].Ended {
			t.Errorf("%d questions in 21 s: %+v", n, a.asked)
		}
	})
}

// Each blob is fetched when the master lets it be; a question says what goes on, and what has come since the last answer.
func TestSearchByBlob(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &answers{leaves: time.Hour, blobs: 20 * time.Second}
		s := newSearch(a)
		stop := s.keep(t.Context())
		began := time.Now()
		body, err := s.open(t.Context(), "sha256:b", 0, -1)
		if took := time.Since(began); body != nil || err != nil || took < a.blobs || took > a.blobs+2*askSources {
			t.Errorf("after %v: %v, %v", took, body, err)
		}
		s.progress("sha256:b", 7)
		time.Sleep(2 * keepEvery)
		synctest.Wait()
		want := []schema.SourceFetch{{Blob: "sha256:b", Begun: true, Bytes: 7}}
		if q := a.asked[len(a.asked)-1]; !slices.Equal(q.Fetches, want) || len(q.Have) > 0 {
			t.Errorf("while it comes: %+v", q)
		}
		if q := a.asked[0]; !slices.Equal(q.Fetches, []schema.SourceFetch{{Blob: "sha256:b"}}) {
			t.Errorf("before: %+v", q)
		}
		s.end("sha256:b", true)
		a.mu.Lock()
		a.leaves = 0 // the next question is lost
		a.mu.Unlock()
		time.Sleep(keepEvery + askSources)
		a.mu.Lock()
		a.leaves = time.Hour
		a.mu.Unlock()
		time.Sleep(keepEvery)
		synctest.Wait()
		lost, answered := a.asked[len(a.asked)-2], a.asked[len(a.asked)-1]
		if len(lost.Have) != 1 || len(lost.Fetches) > 0 || len(answered.Have) != 1 || answered.Turn != lost.Turn+1 || answered.Pull != a.asked[0].Pull {
			t.Errorf("when it is here: %+v, then %+v", lost, answered)
		}
		stop(nil)
		if q := a.asked[len(a.asked)-1]; !q.Whole || q.Ended || len(q.Have) > 0 {
			t.Errorf("in the end: %+v", q)
		}
	})
}

// One that is slow once is asked again, and only then not counted on; one that lies is not asked again.
func TestSearchAvoids(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSearch(&answers{})
		said := func() []string {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.question().Without
		}
		avoid := func(machine string, liar bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.avoid(machine, liar)
		}
		avoid("slow", false)
		if !s.avoids("slow") || len(said()) > 0 {
			t.Errorf("slow once: asked %v, said %v", !s.avoids("slow"), said())
		}
		time.Sleep(firstFault)
		if s.avoids("slow") {
			t.Error("it is not asked again")
		}
		avoid("slow", false)
		avoid("liar", true)
		if got := said(); len(got) != 2 {
			t.Errorf("twice: said %v", got)
		}
		time.Sleep(longestOut)
		if got := said(); !slices.Equal(got, []string{"liar"}) || s.avoids("slow") || !s.avoids("liar") {
			t.Errorf("later: said %v", got)
		}
	})
}

// Who is sent to machines that give nothing goes to the registry when the master lets it, and in the
// end whatever they and the master say.
func TestSearchEnds(t *testing.T) {
	t.Parallel()
	peers := schema.SourceAnswer{Peers: []schema.SourcePeer{{Machine: "m"}}}
	later, never := PeerAnswer{Later: true}, 100*time.Hour
	for name, c := range map[string]struct {
		*answers
		least, most time.Duration
	}{
		"nothing":              {&answers{leaves: never}, stalledFor, 2 * stalledFor},
		"later":                {&answers{get: later, leaves: never}, stalledFor, 2 * stalledFor},
		"others' turns":        {&answers{get: later, leaves: never, turn: 20 * time.Minute}, 20 * time.Minute, 20*time.Minute + 10*time.Second},
		"never":                {&answers{get: later, leaves: never, turn: never}, longest, longest + 10*time.Second},
		"others first":         {&answers{get: later, grows: true, leaves: never}, patience, patience + 2*stalledFor},
		"no master":            {&answers{}, 0, 0},
		"no master in the end": {&answers{get: later, leaves: time.Second}, stalledFor, 3 * stalledFor},
		"no master at turns":   {&answers{get: later, leaves: 2 * stalledFor, turn: never}, 3 * stalledFor, 4 * stalledFor},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := c.answers
				a.answer = peers
				began := time.Now()
				body, err := newSearch(a).open(t.Context(), "sha256:b", 0, -1)
				if took := time.Since(began); body != nil || err != nil || took < c.least || took > c.most {
					t.Errorf("after %v: %v, %v", took, body, err)
				}
				if last := a.asked[len(a.asked)-1]; !last.Stalled && c.most > 0 {
					t.Errorf("the master was not asked whether that may be: %+v", last)
				}
			})
		})
	}
}
