package cell

import (
	"context"
	"crypto/rand"
	"io"

	"github.com/musterhq/muster/reconciler/checkpoint"
	"github.com/musterhq/muster/reconciler/loop"
	"github.com/musterhq/muster/reconciler/status"
)

// checkpoints writes the cell down that a term leads.
type checkpoints struct {
	term    *term
	release string
}

// Checkpoint returns what writes a checkpoint of this moment.
func (c checkpoints) Checkpoint(ctx context.Context, values bool) (func(io.Writer) error, error) {
	in, err := with(c.term, func(l *loop.Loop) (status.DescribeInput, error) { return l.Moment(ctx) })
	if err != nil {
		return nil, err
	}
	h := checkpoint.HeaderOf(in.State, in.Observed, in.Head, in.Now)
	h.Release = c.release
	if !values {
		h.Redaction = rand.Text()
	}
	return func(w io.Writer) error { return checkpoint.Write(w, h, in.State, in.Observed) }, nil
}
