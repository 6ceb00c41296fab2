package web

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Suspensions keep commits from changing what runs, in an emergency. They do not
// change what is desired.
type Suspensions interface {
	// Suspend leaves a job, or all, as it is; lasts is for how long, 0 without
	// an end. It errs with model.NotFoundError if the cell runs no such job.
	Suspend(ctx context.Context, x schema.Suspension, lasts time.Duration) (*schema.Suspension, error)
	// Resume ends that, and returns what it was; nil if it was not suspended.
	Resume(ctx context.Context, name, by string) (*schema.Suspension, error)
}

func (s *Server) suspend(w http.ResponseWriter, r *http.Request) error {
	q := query{r.URL.Query(), nil}
	lasts := q.lasting("for")
	if q.err != nil {
		return q.err
	}
	name, err := s.suspendable(q.Get("name"))
	if err != nil {
		return err
	}
	reason := q.Get("reason")
	if err := schema.CheckReason(reason); err != nil {
		return badRequest("give a reason on one line", "suspend %s: %v", name, err)
	}
	x, err := s.cfg.Suspensions.Suspend(r.Context(), schema.Suspension{Name: name, Reason: reason, By: s.caller(r)}, lasts)
	if err != nil {
		return refused(err)
	}
	w.Header().Set("Content-Type", "application/json")
	return writeJSON(w, x)
}

func (s *Server) resume(w http.ResponseWriter, r *http.Request) error {
	name, err := s.suspendable(r.URL.Query().Get("name"))
	if err != nil {
		return err
	}
	was, err := s.cfg.Suspensions.Resume(r.Context(), name, s.caller(r))
	if err != nil {
		return refused(err)
	}
	cell, _, err := s.cfg.Cell.Snapshot(r.Context())
	if err != nil {
		return stopped(err)
	}
	answer := schema.Resumed{Was: was, Still: []string{}}
	for i := range cell.Brief().Suspended {
		if x := &cell.Brief().Suspended[i]; name == schema.AllJobs || x.All() || x.Name == name {
			answer.Still = append(answer.Still, x.Name)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	return writeJSON(w, answer)
}

// refused is the answer when the cell does not do what was asked for.
func refused(err error) error {
	var none *model.NotFoundError
	if errors.As(err, &none) {
		return notFound(err)
	}
	return stopped(err)
}

// suspendable returns the name of a suspension: all, or user/job.
func (s *Server) suspendable(name string) (string, error) {
	if name == schema.AllJobs {
		return name, nil
	}
	job, err := s.job(name)
	if err != nil {
		return "", err
	}
	return job.Short(), nil
}

// lasting returns how long something is to last, 0 when it is absent.
func (q *query) lasting(name string) time.Duration {
	if q.Get(name) == "" {
		return 0
	}
	d, err := time.ParseDuration(q.Get(name))
	if err != nil || d < time.Second {
		q.fail(name, "a duration of at least 1s, such as 2h")
	}
	return d
}
