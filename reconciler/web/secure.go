package web

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/schema/identity"
)

// Secure is how callers are known who come over TLS.
type Secure struct {
	TLS *tls.Config // TLS 1.3, with client certificates required
	// Admit errs with identity.ErrRefused for a caller who is not welcome any
	// more.
	Admit func(*identity.Peer) error
}

// admit errs unless the caller may make the request. What changes something, or
// takes the connection over, is for operators.
func (s *Server) admit(r *http.Request) (*identity.Peer, error) {
	if r.TLS == nil {
		return nil, &failure{http.StatusForbidden, "the request did not come over TLS", "use https"}
	}
	p, err := identity.PeerOf(r.TLS, s.cfg.Name)
	if err == nil && p == nil {
		err = errors.New("no client certificate")
	}
	if err == nil {
		err = s.cfg.Secure.Admit(p)
	}
	if err != nil {
		return nil, &failure{http.StatusForbidden, err.Error(), "get a certificate from `muster pki issue` of this cell"}
	}
	if !p.Role.Client() {
		return nil, &failure{
			http.StatusForbidden, fmt.Sprintf("%s may not use the API", p),
			"show a certificate of `muster pki issue --role operator` or read-only",
		}
	}
	if !permits(p.Role, r) && !slices.Contains(open, r.URL.Path) {
		return nil, &failure{
			http.StatusForbidden, fmt.Sprintf("%s needs the role %s; you are %s", commandOf(r), needed(r), p),
			"show a certificate of `muster pki issue --role " + string(needed(r)) + "`",
		}
	}
	return p, nil
}

// admitEvery is how often a caller is checked again while a request goes on, such
// as for a log that is followed.
const admitEvery = time.Second

// secured serves callers who may make their request, for as long as their
// certificate is good.
func (s *Server) secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, err := s.admit(r)
		if err != nil {
			s.refused(w, r, err)
			return
		}
		ctx, cancel := context.WithDeadline(r.Context(), p.Expires)
		defer cancel()
		go func() {
			tick := time.NewTicker(admitEvery)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
				}
				if s.cfg.Secure.Admit(p) != nil {
					cancel()
				}
			}
		}()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// commandOf names what a request asks for: the word after /v1/.
func commandOf(r *http.Request) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/"), "/")
	return name
}
