//go:build !amd64

package strike

import "errors"

// Supported reports whether New works here.
const Supported = false

// Tracer traces all processes of one program.
type Tracer struct{ Program string }

// New fails: see the package's documentation.
func New(string, string, func(Effect) Verdict) (*Tracer, error) {
	return nil, errors.New("no tracer for this architecture")
}

// Close does nothing.
func (t *Tracer) Close() error { return nil }

// Exec fails.
func Exec() error { return errors.New("no tracer for this architecture") }
