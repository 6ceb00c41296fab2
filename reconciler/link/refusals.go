package link

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc/status"

	"github.com/musterhq/muster/reconciler/denied"
	"github.com/musterhq/muster/schema"
)

// Reasons for which an agent, or who says that it is one, is refused, as the metric has
// them.
const (
	refusedUser        = "user"        // of the unix socket: not the master's, and not root
	refusedTLS         = "tls"         // no handshake, or a certificate of another authority or cell
	refusedCertificate = "certificate" // revoked, expired, of another role or machine, or none
	refusedToken       = "token"       // for which no certificate is given
	refusedName        = "name"        // another agent has it
	refusedBehind      = "behind"      // the agent knows more than the store
	refusedReport      = "report"      // what the agent reports cannot be read, or is more than is taken
)

// refusals are those of a Server.
type refusals struct{ *denied.Log }

func newRefusals(log *slog.Logger, audit func(schema.Event)) refusals {
	return refusals{denied.New(denied.Config{
		What: "agent", Metric: "muster_agents_refused_total",
		Help:    "Connections and sessions of agents that were refused, by reason: the user of a unix socket, the TLS handshake, the certificate, a join token or a renewal, a name that another agent has, a store of the master that is older than the agent's state, or a report that cannot be read or is more than is taken.",
		Reasons: []string{refusedUser, refusedTLS, refusedCertificate, refusedToken, refusedName, refusedBehind, refusedReport},
		Log:     log, Audit: audit,
	})}
}

// caller takes note that the caller in a context gets err, a gRPC status, which it returns.
func (r refusals) caller(ctx context.Context, err error) error {
	r.Refused(refusedCertificate, errors.New(status.Convert(err).Message()), time.Now(), "from", connection(ctx).From)
	return err
}
