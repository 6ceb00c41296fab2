package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"strconv"
	"time"

	"github.com/musterhq/muster/reconciler/status"
)

const (
	// headerLeader and headerAge say, in an answer of a master that does not lead, which
	// one does, and how old in seconds the state is that it answers from.
	headerLeader = "Muster-Leader"
	headerAge    = "Muster-State-Age"
	// headerCaller says who makes a request that another master forwards.
	headerCaller = "Muster-Caller"
	// catchUpTimeout is how long the answer to a change may wait until it is seen here.
	catchUpTimeout = 5 * time.Second
)

// Leader reaches the master that leads, from one that does not.
type Leader interface {
	// Followed returns which master leads and how old the state is that it has pushed
	// here; false while none is followed, also since this one leads.
	Followed() (r status.Replica, ok bool)
	// Transport carries requests to its API.
	Transport() http.RoundTripper
	// CatchUp waits until the state here is as new as the leader's is now.
	CatchUp(ctx context.Context) error
}

// callerKey is the key of a context's value: who makes a request that another master
// forwards.
type callerKey struct{}

// forwardedBy returns who makes a request that another master forwards.
func forwardedBy(r *http.Request) (caller string, forwarded bool) {
	caller, forwarded = r.Context().Value(callerKey{}).(string)
	return caller, forwarded
}

// forwarder forwards requests to the leader.
type forwarder struct {
	leader Leader // nil for a master that is alone
	caller func(*http.Request) string
	fail   func(http.ResponseWriter, error)
	log    *slog.Logger
}

// byLeader wraps a handler of requests that only the leader can answer. They are answered
// here if this master leads, or follows none, and are forwarded otherwise.
func (f *forwarder) byLeader(here http.Handler) http.Handler {
	if f.leader == nil {
		return here
	}
	proxy := &httputil.ReverseProxy{
		Transport: f.leader.Transport(),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", "leader", "leader"
			for _, own := range []string{"Authorization", "Cookie", "Origin"} {
				r.Out.Header.Del(own) // checked here
			}
			r.Out.Header.Set(headerCaller, f.caller(r.In))
		},
		ModifyResponse: f.caughtUp,
		ErrorHandler:   f.notForwarded,
		ErrorLog:       slog.NewLogLogger(f.log.Handler(), slog.LevelDebug),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leader, ok := f.leader.Followed()
		if _, forwarded := forwardedBy(r); forwarded || !ok {
			here.ServeHTTP(w, r)
			return
		}
		w.Header().Set(headerLeader, leader.Leader)
		for _, own := range []string{"X-Content-Type-Options", "Cache-Control", "Cross-Origin-Resource-Policy"} {
			w.Header().Del(own) // the leader's answer has them
		}
		proxy.ServeHTTP(w, r)
	})
}

// caughtUp delays the answer to a change until the change is seen here too, so that the
// client's next request, which is answered from the state here, sees it. If that takes too
// long, or the leader goes away, the answer is sent all the same: the state has its age.
func (f *forwarder) caughtUp(r *http.Response) error {
	if readsOnly(r.Request) || r.StatusCode/100 != 2 {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Request.Context(), catchUpTimeout)
	defer cancel()
	if err := f.leader.CatchUp(ctx); err != nil {
		f.log.Debug("the state here is older than an answer of the leader", "err", err)
	}
	return nil
}

// notForwarded answers a request that did not reach the leader, or that it did not answer.
func (f *forwarder) notForwarded(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		return // the client has left
	}
	message := fmt.Sprintf("the master that leads did not answer: %v", err)
	if leader, ok := f.leader.Followed(); ok {
		message = fmt.Sprintf("the master that leads, %s, did not answer: %v", leader.Leader, err)
	}
	hint := "try again: another master leads soon, if that one is gone"
	if !readsOnly(r) {
		hint = "it may have been done all the same: look at muster status, and try again"
	}
	f.fail(w, &failure{http.StatusServiceUnavailable, message, hint})
}

// aged adds to an answer from the state here how old that is, if another master leads.
func (f *forwarder) aged(next http.Handler) http.Handler {
	if f.leader == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if leader, ok := f.leader.Followed(); ok {
			w.Header().Set(headerLeader, leader.Leader)
			w.Header().Set(headerAge, strconv.FormatFloat(leader.AgeSeconds, 'f', 3, 64))
		}
		next.ServeHTTP(w, r)
	})
}
