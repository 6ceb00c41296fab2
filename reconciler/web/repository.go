package web

import (
	"context"
	"errors"
	"net/http"

	"github.com/musterhq/muster/reconciler/status"
)

// Repository is the cell's config repository, as the master that leads follows it.
type Repository interface {
	// Look has the repository read now, and returns what that found once a Status has it.
	// It errs with *status.SourceError if it cannot be read.
	Look(ctx context.Context) (*status.Look, error)
	// Standing returns how a commit, a hash or the beginning of one, relates to the head of
	// the status.
	Standing(ctx context.Context, name string) (*status.Standing, error)
}

// reconcile has the cell look now, and answers when it has.
func (s *Server) reconcile(w http.ResponseWriter, r *http.Request) error {
	l, err := s.cfg.Repository.Look(r.Context())
	var source *status.SourceError
	switch {
	case errors.As(err, &source):
		return &failure{http.StatusBadGateway, source.Message, source.Hint}
	case err != nil:
		return stopped(err)
	}
	w.Header().Set("Content-Type", "application/json")
	return writeJSON(w, l)
}

// commit answers how a commit stands to the head.
func (s *Server) commit(w http.ResponseWriter, r *http.Request) error {
	name := r.URL.Query().Get("name")
	if !commitName.MatchString(name) {
		return badRequest("such as /v1/commit?name=1f00aa3", "name %.80q: want a commit's hash, or the beginning of one, in lower-case hexadecimal digits", name)
	}
	standing, err := s.cfg.Repository.Standing(r.Context(), name)
	if err != nil {
		return stopped(err)
	}
	w.Header().Set("Content-Type", "application/json")
	return writeJSON(w, standing)
}
