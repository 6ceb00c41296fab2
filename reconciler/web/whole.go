package web

import (
	"context"
	"net/http"
	"time"

	"github.com/musterhq/muster/reconciler/status"
)

// statusQuery says which part of a status is wanted.
type statusQuery struct {
	group status.Group
	brief bool // without tasks
	most  int  // jobs and machines of which there is nothing to say; less than 0: all
}

func statusQueryOf(q *query) statusQuery {
	return statusQuery{status.Group{Name: q.Get("name"), Selector: q.selector()}, q.Get("tasks") != "" && !q.flag("tasks"), q.number("most", -1)}
}

// whole reports whether the answer is as large as the cell.
func (q *statusQuery) whole() bool { return q.group.Name == "" && (!q.brief || q.most < 0) }

// of returns the status that is wanted.
func (q *statusQuery) of(cell *status.Snapshot) (*status.Status, error) {
	part, err := q.group.Of(cell)
	if err != nil {
		return nil, notFound(err)
	}
	out := part.Brief()
	if !q.brief {
		out = part.Whole()
	}
	if q.most >= 0 {
		out = out.Shortened(q.most)
	}
	return out, nil
}

// maxWhole is how many answers as large as the cell are made at once: each takes a
// processor for a while, and memory for as long as its reader needs.
const maxWhole = 4

// wholeTimeout is how long one may wait for its turn, and then how long its reader may
// take.
const wholeTimeout = time.Minute

// slots bound how much is done at once.
type slots chan struct{}

// with calls f, which answers a request, when there is a slot; at once if it needs none.
func (x slots) with(w http.ResponseWriter, r *http.Request, needed bool, f func() error) error {
	if !needed {
		return f()
	}
	release, err := x.take(r.Context(), true)
	if err != nil {
		return err
	}
	defer release()
	if err := http.NewResponseController(w).SetWriteDeadline(time.Now().Add(wholeTimeout)); err == nil {
		defer func() { _ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) }()
	}
	return f()
}

// take returns what gives a slot back, when there is one; at once if none is needed.
func (x slots) take(ctx context.Context, needed bool) (release func(), err error) {
	if !needed {
		return func() {}, nil
	}
	patience := time.NewTimer(wholeTimeout)
	defer patience.Stop()
	select {
	case x <- struct{}{}:
		return func() { <-x }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-patience.C:
		return nil, &failure{http.StatusServiceUnavailable, "too many ask for the whole cell at once", "ask for /v1/jobs, tasks and machines in pages, and watch them"}
	}
}
