package web

import (
	"context"
	"io"
	"net/http"
	"strings"
)

// Checkpoints writes the whole cell down.
type Checkpoints interface {
	// Checkpoint returns what writes a checkpoint of this moment; with values, one with the
	// values of environment variables, files, and the ciphertexts of secrets.
	Checkpoint(ctx context.Context, values bool) (write func(io.Writer) error, err error)
}

// checkpoint streams a checkpoint. What goes wrong from its first byte on is said in a
// trailer.
func checkpoint(s *Server, values bool) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		write, err := s.cfg.Checkpoints.Checkpoint(r.Context(), values)
		if err != nil {
			return stopped(err)
		}
		if values {
			s.cfg.Log.Warn("a checkpoint with the values of all jobs is taken", "by", s.caller(r))
		}
		w.Header().Set("Content-Type", "application/zstd")
		if err := write(w); err != nil {
			w.Header().Set(http.TrailerPrefix+trailerError, strings.Join(strings.Fields(err.Error()), " "))
		}
		return nil
	}
}

// pathCheckpoint is where a checkpoint without values is.
const pathCheckpoint = "/v1/checkpoint"

// trailerError is the trailer that says what ended a stream.
const trailerError = "Muster-Error"
