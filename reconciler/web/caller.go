package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/reconciler/local"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/identity"
)

// Local is who may come without TLS, from this machine: root, the master's own
// user, and Users. Whoever else comes is refused, tasks whatever they show.
type Local struct {
	Own   uint32 // the user that the master runs as
	Users []LocalUser
	// Socket is the path of the API's unix socket, for hints; "" without one.
	Socket string
	// Page is where a browser finds the status page, http://HOST:PORT/; "" where it
	// shows a certificate.
	Page string
}

// LocalUser are numeric users, both ends included, and what they may do.
type LocalUser struct {
	First, Last uint32
	Role        identity.Role // Operator, ReadOnly or Plan
}

// peer is who has made a connection, as the kernel says.
type peer struct {
	uid  uint32
	unix bool
	err  error // it does not say
}

// peerKey finds a connection's peer in the context of its requests.
type peerKey struct{}

// withPeer finds out who has made a connection when it is accepted: whoever makes
// it is there at that moment, and what it says later changes nothing.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	_, unix := c.(*net.UnixConn)
	uid, err := local.UserOf(c)
	return context.WithValue(ctx, peerKey{}, peer{uid, unix, err})
}

// maxTaskConns is how many connections all tasks of the machine may have at once. What
// they ask is refused, and what they have open would be the master's memory.
const maxTaskConns = 64

// taskConns are the connections of tasks.
type taskConns struct {
	mu   sync.Mutex // guards open
	open map[net.Conn]bool
}

// accept takes a new connection, and closes one too many of tasks.
func (t *taskConns) accept(ctx context.Context, c net.Conn) context.Context {
	ctx = withPeer(ctx, c)
	if p := ctx.Value(peerKey{}).(peer); p.err != nil || !schema.IsTaskUser(p.uid) {
		return ctx
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.open) >= maxTaskConns {
		_ = c.Close()
		return ctx
	}
	if t.open == nil {
		t.open = map[net.Conn]bool{}
	}
	t.open[c] = true
	return ctx
}

// changed forgets a connection that has ended.
func (t *taskConns) changed(c net.Conn, s http.ConnState) {
	if s == http.StateClosed || s == http.StateHijacked {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.open, c)
	}
}

// peerOf returns who has made the connection of a request.
func peerOf(r *http.Request) peer {
	if p, ok := r.Context().Value(peerKey{}).(peer); ok {
		return p
	}
	return peer{err: local.ErrUnknown}
}

// caller says who makes a request, for the history: over TLS who the certificate
// says, else the user of this machine.
func (s *Server) caller(r *http.Request) string {
	if name, forwarded := forwardedBy(r); forwarded {
		return name
	}
	if r.TLS != nil {
		if p, err := identity.PeerOf(r.TLS, s.cfg.Name); err == nil && p != nil {
			return p.String()
		}
	}
	if p := peerOf(r); p.err == nil {
		return userName(p.uid)
	}
	return "somebody on the master's machine"
}

// userName returns the name of a numeric user, or says its number.
func userName(uid uint32) string {
	if u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10)); err == nil {
		return u.Username
	}
	return fmt.Sprintf("uid %d", uid)
}

// refusal is a request that is refused for who makes it.
type refusal struct {
	failure
	reason string
}

func refuse(reason, hint, format string, args ...any) *refusal {
	return &refusal{failure{http.StatusForbidden, fmt.Sprintf(format, args...), hint}, reason}
}

// Unwrap returns the failure that is sent to the caller.
func (r *refusal) Unwrap() error { return &r.failure }

// admitLocal errs unless the caller, who comes without TLS, may make the request.
func (s *Server) admitLocal(r *http.Request) error {
	p, l := peerOf(r), &s.cfg.Local
	switch {
	case p.err != nil:
		return refuse(refusedUnknown, "come by "+l.way(), "the client cannot be identified: %v", p.err)
	case p.uid == 0:
		return nil
	case p.uid == l.Own && p.unix:
		return nil
	}
	for _, u := range l.Users {
		if p.uid >= u.First && p.uid <= u.Last && permits(u.Role, r) {
			return nil
		}
	}
	return s.refuseUser(r, p)
}

// permits reports whether a role may make a request.
func permits(role identity.Role, r *http.Request) bool {
	switch role {
	case identity.Operator:
		return true
	case identity.ReadOnly:
		return readsOnly(r)
	case identity.Plan:
		return readsOnly(r) && r.URL.Path == pathCheckpoint
	case identity.Master, identity.Machine:
	}
	return false
}

// needed is the least of the roles for people that a request needs.
func needed(r *http.Request) identity.Role {
	if readsOnly(r) {
		return identity.ReadOnly
	}
	return identity.Operator
}

// way says how a caller is known for certain.
func (l *Local) way() string {
	if l.Socket == "" {
		return "https, with a certificate of `muster pki issue`"
	}
	return "the unix socket: MUSTER_MASTER=unix:" + l.Socket
}

// refuseUser says why a caller who is known may not make the request.
func (s *Server) refuseUser(r *http.Request, p peer) error {
	l, name := &s.cfg.Local, userName(p.uid)
	var role identity.Role
	if known := fmt.Sprintf("uid %d", p.uid); name != known {
		name = fmt.Sprintf("user %s (%s)", name, known)
	}
	for _, u := range l.Users {
		if p.uid >= u.First && p.uid <= u.Last && role != identity.ReadOnly {
			role = u.Role
		}
	}
	switch {
	case role != "":
		return refuse(refusedRole, "its master was started with --allow-user "+strconv.FormatUint(uint64(p.uid), 10)+":"+string(role),
			"%s needs the role %s; you are %s", commandOf(r), needed(r), name)
	case schema.IsTaskUser(p.uid):
		return refuse(refusedTask, "ask as a user who is none of a task, or over TLS with a certificate of `muster pki issue`",
			"you are %s, which is a task's user: tasks may not use the API of their cell", name)
	case p.uid == l.Own:
		return refuse(refusedUser, "come by "+l.way()+fmt.Sprintf("; or start the master with --allow-user %d if no task runs as that user", p.uid),
			"you are %s, as the master is; without root it runs tasks as that user too, and over TCP nothing distinguishes them", name)
	}
	return refuse(refusedUser, fmt.Sprintf("ask as root or as the master's user, or start the master with --allow-user %d", p.uid),
		"you are %s, who may not use the API of cell %s", name, s.cfg.Name)
}

// open are the paths that reveal nothing, and need no permission.
var open = []string{"/healthz"}

// locally serves callers from this machine who may make their request, and lets a
// browser show the page's password.
func (s *Server) locally(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := s.admitLocal(r)
		if err == nil || slices.Contains(open, r.URL.Path) || s.pages.admits(r) {
			next.ServeHTTP(w, r)
			return
		}
		var no *refusal
		if r.URL.Path == "/" && readsOnly(r) && errors.As(err, &no) && no.reason == refusedUser {
			w.Header().Set("WWW-Authenticate", `Basic realm="muster: `+"`muster page`"+` prints the password", charset="UTF-8"`)
			no.code, no.hint = http.StatusUnauthorized, "`muster page` prints an address with a password; "+no.hint
		}
		s.refused(w, r, err)
	})
}

// refused answers a request that is refused for who makes it. It ends the
// connection: whoever made it stays who it is.
func (s *Server) refused(w http.ResponseWriter, r *http.Request, err error) {
	reason := refusedCertificate
	if no := new(refusal); errors.As(err, &no) {
		reason = no.reason
	}
	s.refusals.Refused(reason, err, time.Now(), "from", r.RemoteAddr, "path", strings.ToValidUTF8(r.URL.Path[:min(len(r.URL.Path), maxLogged)], "?"))
	w.Header().Set("Connection", "close")
	s.fail(w, err)
}
