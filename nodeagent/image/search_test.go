package image

import (
	"context"
	"errors"
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
	return a.answer, nil
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

// Who is sent to machines that give nothing goes to the registry in the end, whatever they and the
// master say.
func TestSearchEnds(t *testing.T) {
	t.Parallel()
	peers := schema.SourceAnswer{Peers: []schema.SourcePeer{{Machine: "m"}}}
	for name, c := range map[string]struct {
		*answers
		least, most time.Duration
	}{
		"nothing":              {&answers{leaves: time.Hour}, stalledFor, 3 * stalledFor},
		"later":                {&answers{get: PeerAnswer{Later: true}, leaves: time.Hour}, stalledFor, 3 * stalledFor},
		"others first":         {&answers{get: PeerAnswer{Later: true}, grows: true, leaves: time.Hour}, patience, patience + 3*stalledFor},
		"no master":            {&answers{}, 0, 0},
		"no master in the end": {&answers{get: PeerAnswer{Later: true}, leaves: time.Second}, stalledFor, 3 * stalledFor},
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
