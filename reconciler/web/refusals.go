package web

import (
	"log/slog"

	"github.com/musterhq/muster/reconciler/denied"
	"github.com/musterhq/muster/schema"
)

// Reasons for which a request is refused, as the metric has them.
const (
	refusedTask        = "task"        // the user is a task's
	refusedUser        = "user"        // of another user that nobody has named
	refusedUnknown     = "unknown"     // the kernel does not say whose it is
	refusedRole        = "role"        // it needs an operator
	refusedOrigin      = "origin"      // a page elsewhere may have caused it
	refusedCertificate = "certificate" // over TLS
)

const maxLogged = 80 // of a path, in bytes

func newRefusals(log *slog.Logger, audit func(schema.Event)) *denied.Log {
	return denied.New(denied.Config{
		What: "request", Metric: "muster_requests_refused_total",
		Help:    "Requests that were refused because of the caller, by reason: a task, a user without --allow-user, a user that the kernel does not know, a read-only role, a page of another origin, a certificate.",
		Reasons: []string{refusedTask, refusedUser, refusedUnknown, refusedRole, refusedOrigin, refusedCertificate},
		Log:     log, Audit: audit,
	})
}
