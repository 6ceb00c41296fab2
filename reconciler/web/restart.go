package web

import (
	"context"
	"net/http"
	"strings"

	"github.com/musterhq/muster/schema"
)

// Restarts restarts tasks. It does not change what is desired.
type Restarts interface {
	// Restart restarts the tasks of a job that run, or one. It errs with
	// model.NotFoundError if the cell runs no such job or task, or must not.
	Restart(ctx context.Context, x schema.RestartRequest) (*schema.Restarting, error)
	// CancelRestart ends that where it is.
	CancelRestart(ctx context.Context, name, by string) (*schema.Restarting, error)
}

func (s *Server) restart(w http.ResponseWriter, r *http.Request) error {
	q := query{r.URL.Query(), nil}
	cancel := q.flag("cancel")
	if q.err != nil {
		return q.err
	}
	name, err := s.jobOrTask(q.Get("name"))
	if err != nil {
		return err
	}
	var answer *schema.Restarting
	if cancel {
		answer, err = s.cfg.Restarts.CancelRestart(r.Context(), name, s.caller(r))
	} else {
		if err := schema.CheckReason(q.Get("reason")); err != nil {
			return badRequest("give a reason on one line", "restart %s: %v", name, err)
		}
		answer, err = s.cfg.Restarts.Restart(r.Context(), schema.RestartRequest{Name: name, Reason: q.Get("reason"), By: s.caller(r)})
	}
	if err != nil {
		return refused(err)
	}
	w.Header().Set("Content-Type", "application/json")
	return writeJSON(w, answer)
}

// jobOrTask returns the name of a job of this cell, user/job, or of a task,
// user/job/index.
func (s *Server) jobOrTask(name string) (string, error) {
	if strings.Count(name, "/") == 2 {
		task, err := s.task(name)
		return task.Short(), err
	}
	job, err := s.job(name)
	return job.Short(), err
}
