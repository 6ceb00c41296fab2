package link

import (
	"errors"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/linkpb"
)

// Sealer seals secrets for machines. Its method is called from any goroutine.
type Sealer interface {
	// SealFor opens a secret as it is in the data of a job, and returns it as an armored age
	// file for the recipient alone. The error is for users, and has nothing of the secret.
	SealFor(s *schema.SealedSecret, recipient string) (string, error)
}

// errNoSealer is why a machine is not given a secret.
var errNoSealer = errors.New("this master has no identity that opens the cell's secrets: muster master --secret-identity FILE")

// seal adds a secret if the agent lacks it; of says what it is for. Nobody else can open what
// is sent, and no machine is sent what nothing of its own needs. One without a recipient may be
// of an earlier release, which would not know the message: it gets none.
func (c *session) seal(out *encoded, s *schema.SealedSecret, of ...any) {
	if s == nil || s.Version == "" || c.report.Machine.Recipient == "" {
		return
	}
	if _, done := out.sealed[s.Version]; done {
		return
	}
	if out.sealed == nil {
		out.sealed = map[string]bool{}
	}
	has, said := c.sealed[s.Version]
	if out.sealed[s.Version] = has; has {
		return
	}
	m := &linkpb.Secret{Version: s.Version}
	text, err := c.sealFor(s)
	if err != nil {
		m.Refused = refusal(err)
	}
	if err != nil && !said {
		c.server.cfg.Log.Warn("a secret is not sent", append(of, "machine", c.machine, "err", err)...)
	}
	m.Sealed, out.sealed[s.Version] = text, err == nil
	out.messages = append(out.messages, &linkpb.MasterMessage{Message: &linkpb.MasterMessage_Secret{Secret: m}})
}

func (c *session) sealFor(s *schema.SealedSecret) (string, error) {
	if c.server.cfg.Secrets == nil {
		return "", errNoSealer
	}
	return c.server.cfg.Secrets.SealFor(s, c.report.Machine.Recipient)
}

// refusal returns what a machine says of a secret that it cannot have.
func refusal(err error) string {
	message, hint := schema.HintOf(err)
	if hint != "" {
		message += " (" + hint + ")"
	}
	return message
}
