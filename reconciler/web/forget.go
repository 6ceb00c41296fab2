package web

import (
	"context"
	"errors"
	"net/http"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/schema"
)

// Machines forgets machines. It does not change what is desired.
type Machines interface {
	// Forget has a machine forgotten; with dry it only says what that would do. It
	// errs with model.NotFoundError if there is no such machine, and with
	// control.LinkedError if its agent is connected.
	Forget(ctx context.Context, machine string, x schema.Forgotten, dry bool) (*schema.Forgetting, error)
}

func (s *Server) forget(w http.ResponseWriter, r *http.Request) error {
	q := query{r.URL.Query(), nil}
	dry := q.flag("dry")
	if q.err != nil {
		return q.err
	}
	name, reason := q.Get("machine"), q.Get("reason")
	if err := schema.CheckName(name); err != nil {
		return badRequest("muster status lists the machines", "machine: %v", err)
	}
	if err := schema.CheckReason(reason); err != nil {
		return badRequest("give a reason on one line", "forget %s: %v", name, err)
	}
	answer, err := s.cfg.Machines.Forget(r.Context(), name, schema.Forgotten{Reason: reason, By: s.caller(r)}, dry)
	if linked := (*control.LinkedError)(nil); errors.As(err, &linked) {
		return &failure{http.StatusConflict, err.Error(), linked.Hint()}
	}
	if err != nil {
		return refused(err)
	}
	w.Header().Set("Content-Type", "application/json")
	return writeJSON(w, answer)
}
