package cell

import (
	"context"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/musterhq/muster/reconciler/link"
	"github.com/musterhq/muster/reconciler/pki"
	"github.com/musterhq/muster/reconciler/relay"
	"github.com/musterhq/muster/reconciler/web"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/identity"
)

// expiresSoon is when the log begins to say that the master's certificate will
// not last.
const expiresSoon = 14 * 24 * time.Hour

// listen opens the cell's authority, if there is one, and what is listened on
// over TCP. Without an authority that is loopback alone.
func (m *master) listen() (*pki.Directory, error) {
	cfg := &m.cfg
	if cfg.PKI == "" {
		if cfg.LinkListen != "" {
			return nil, inputError("create an authority with `muster pki init`, and name its directory with --pki",
				"--link-listen %s: agents from elsewhere need TLS, and this master has no certificate", cfg.LinkListen)
		}
		var err error
		if m.api, err = web.Listen(cfg.Listen); err != nil {
			return nil, &InputError{err}
		}
		return nil, nil
	}
	d, err := pki.Open(cfg.PKI)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, inputError("create one with `muster pki init`", "no authority in %s: %w", cfg.PKI, err)
	case err != nil:
		return nil, inputError("--pki names the directory of `muster pki init`", "authority in %s: %w", cfg.PKI, err)
	}
	if cfg.Cell == "" {
		cfg.Cell = d.Cell
	}
	if m.api, err = web.ListenSecure(cfg.Listen); err != nil {
		return nil, &InputError{err}
	}
	if cfg.LinkListen == "" {
		return d, nil
	}
	if m.machines, err = net.Listen("tcp", cfg.LinkListen); err != nil {
		return nil, inputError("want HOST:PORT with an address of this machine and a port that is free, such as :7421", "--link-listen %s: %w", cfg.LinkListen, err)
	}
	return d, nil
}

// checkAuthority errs for the authority of another cell.
func (m *master) checkAuthority(d *pki.Directory) error {
	if d != nil && d.Cell != m.cell {
		return inputError("name the directory of this cell's authority with --pki", "the authority in %s is of cell %s, and this is cell %s", m.cfg.PKI, d.Cell, m.cell)
	}
	return nil
}

// openAuthority makes the authority ready to serve.
func (m *master) openAuthority(d *pki.Directory) error {
	if d == nil {
		return nil
	}
	var err error
	m.authority, err = pki.OpenAuthority(pki.Config{Dir: d, Ledger: m.store, Life: m.cfg.MachineLife, Log: m.cfg.Log})
	if errors.Is(err, pki.ErrMaster) {
		return inputError("issue one with `muster pki issue --role master`", "%w", err)
	}
	return err
}

// secure returns what the link and the API need; nil without an authority.
func (m *master) secure() (*link.Secure, *web.Secure) {
	if m.authority == nil {
		return nil, nil
	}
	a := m.authority
	return &link.Secure{TLS: a.TLS(true, "h2"), Authority: joining{a, m}},
		&web.Secure{TLS: a.TLS(false, "h2", "http/1.1"), Admit: a.Admit}
}

// joining is the authority of a master: who joins with a token is for the master that
// leads, since a token is used once.
type joining struct {
	*pki.Authority
	master *master
}

// Join burns a token and returns the certificate for a machine's request.
func (j joining) Join(ctx context.Context, token string, request []byte) (*x509.Certificate, error) {
	if _, ok := j.master.term.Followed(); ok {
		return j.master.copy.Join(ctx, token, request)
	}
	return j.Authority.Join(ctx, token, request)
}

// joins returns how machines join that come to other masters; nil without an authority.
func (m *master) joins() func(context.Context, string, []byte) (*x509.Certificate, error) {
	if m.authority == nil {
		return nil
	}
	return m.authority.Join
}

// admit errs when a machine is not welcome with what it has shown another master.
func (m *master) admit(machine string, c *schema.Connection) error {
	if m.authority == nil {
		return nil
	}
	// Whether its certificate has expired is for the master to say that it was shown to.
	return m.authority.Admit(&identity.Peer{
		Name: identity.Name{Cell: m.cell, Role: identity.Machine, Name: machine}, Key: c.Key, Issued: c.Issued, Expires: m.authority.AuthorityExpires(),
	})
}

// revision is another number whenever admit may refuse whom it did not before.
func (m *master) revision() uint64 {
	if m.authority == nil {
		return 0
	}
	return m.authority.Revision()
}

// security is how this master shows another one who it is.
func (m *master) security() relay.Security {
	if m.authority == nil {
		return nil
	}
	return m.authority
}

// listeners returns what agents connect to and is open.
func (m *master) listeners() []net.Listener { return opened(m.agents, m.machines) }

// apis returns what the API is served on and is open.
func (m *master) apis() []net.Listener { return opened(m.api, m.socket) }

func opened(all ...net.Listener) []net.Listener {
	return slices.DeleteFunc(all, func(l net.Listener) bool { return l == nil })
}

// address returns where commands of this machine shall ask: where there is a unix
// socket, no program can have taken its place.
func (m *master) address() string {
	if m.socket != nil && m.authority == nil {
		return "unix:" + m.cfg.Socket
	}
	return m.url()
}

// page returns where a browser without a certificate finds the status page, ""
// where it needs one.
func (m *master) page() string {
	if m.authority != nil {
		return ""
	}
	return m.url() + "/"
}

// url returns where the API is over TCP.
func (m *master) url() string {
	if m.authority == nil {
		return "http://" + m.api.Addr().String()
	}
	return "https://" + reachable(m.api, m.authority.Hosts)
}

// linkAddress returns where other masters reach this one's link: over TLS, or on this
// machine. What is wrong with the certificate is for openAuthority to say.
func (m *master) linkAddress(d *pki.Directory) (string, error) {
	if m.machines != nil {
		return reachable(m.machines, func() []string {
			hosts, err := d.MasterHosts()
			if err != nil || len(hosts) == 0 {
				return []string{"localhost"}
			}
			return hosts
		}), nil
	}
	path, err := filepath.Abs(m.cfg.Link)
	return "unix:" + path, err
}

// reachable returns the address of a listener. One that means all of this machine's is
// none that a client could dial: then it is one of the hosts.
func reachable(l net.Listener, hosts func() []string) string {
	addr := l.Addr().(*net.TCPAddr)
	host := addr.IP.String()
	if addr.IP.IsUnspecified() {
		all := hosts()
		host = all[max(0, slices.IndexFunc(all, elsewhere))]
	}
	return net.JoinHostPort(host, strconv.Itoa(addr.Port))
}

// elsewhere returns whether a host can be dialled from other machines too.
func elsewhere(host string) bool {
	ip := net.ParseIP(host)
	return host != "localhost" && (ip == nil || !ip.IsLoopback())
}

// renewEvery is how often it is looked whether the master's certificate is to be
// renewed: often enough for the shortest life, which is for tests.
const renewEvery = time.Minute

// watchCertificate renews the master's certificate in time, and says once a day that
// it ends soon if that is not possible.
func (m *master) watchCertificate(ctx context.Context) error {
	if m.authority == nil {
		return nil
	}
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	var warned time.Time
	for {
		renewed, err := m.authority.RenewMaster()
		if renewed {
			m.cfg.Log.Info("the master's certificate is renewed", "expires", m.authority.Expires())
		}
		if left := time.Until(m.authority.Expires()); err != nil && left < expiresSoon && time.Since(warned) > 24*time.Hour {
			warned = time.Now()
			m.cfg.Log.Warn("the master's certificate ends soon and cannot be renewed: muster pki issue --role master makes the next, which is taken without a restart",
				"expires", m.authority.Expires(), "left", left.Round(time.Minute), "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
