package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"
)

func (a authority) pair() (*tls.Certificate, error) {
	return &tls.Certificate{Certificate: [][]byte{a.Raw}, PrivateKey: a.key, Leaf: a.Certificate}, nil
}

// leaf makes a certificate that is good for an hour at noon.
func leaf(t testing.TB, ca authority, n Name, change func(*x509.Certificate)) authority {
	t.Helper()
	template := x509.Certificate{
		NotBefore: noon.Add(-Backdate), NotAfter: noon.Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, URIs: []*url.URL{n.URI()},
	}
	if n.Role == Master {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		template.DNSNames = []string{"master.example"}
	}
	if change != nil {
		change(&template)
	}
	return sign(t, template, &ca)
}

// talk connects a client with a server and returns what each end says, and who
// the server thinks the client is.
func talk(t *testing.T, client, server *tls.Config) (peer *Peer, clientErr, serverErr error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	type outcome struct {
		peer *Peer
		err  error
	}
	served := make(chan outcome, 1)
	go func() {
		peer, err := answer(l, server)
		served <- outcome{peer, err}
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	c := tls.Client(raw, client)
	if clientErr = c.Handshake(); clientErr == nil {
		_, clientErr = io.ReadFull(c, make([]byte, 1)) // the server's word on our certificate
	}
	_ = raw.Close()
	o := <-served
	return o.peer, clientErr, o.err
}

// answer takes one connection.
func answer(l net.Listener, cfg *tls.Config) (*Peer, error) {
	raw, err := l.Accept()
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	c := tls.Server(raw, cfg)
	if err := c.Handshake(); err != nil {
		return nil, err
	}
	state := c.ConnectionState()
	peer, err := PeerOf(&state, "c")
	if err == nil {
		_, err = c.Write([]byte("x"))
	}
	return peer, err
}

func clock() time.Time { return noon }

func TestTLS(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	master := leaf(t, ca, Name{"c", Master, "master"}, nil)
	machine := leaf(t, ca, Name{"c", Machine, "m1"}, nil)
	cas := func(list ...authority) func() []*x509.Certificate {
		return func() []*x509.Certificate {
			var out []*x509.Certificate
			for _, a := range list {
				out = append(out, a.Certificate)
			}
			return out
		}
	}
	base := Client{Cell: "c", Host: "master.example", Authorities: cas(ca), Certificate: machine.pair, Now: clock}
	for name, tt := range map[string]struct {
		client func(*Client)
		tls    func(*tls.Config) // what a client that is not ours may do
		server authority         // master's when zero
		anon   bool
		later  time.Duration // on the server's clock
		want   string        // of the client's error, "" for none
		refuse string        // of the server's error, "" for none
		peer   string
	}{
		"good":                        {peer: "machine/m1"},
		"another authority's master":  {client: func(c *Client) { c.Authorities = cas(other) }, want: "it is signed by an authority that is not trusted here", refuse: "bad certificate"},
		"either authority":            {client: func(c *Client) { c.Authorities = cas(other, ca) }, peer: "machine/m1"},
		"another host":                {client: func(c *Client) { c.Host = "10.0.0.1" }, want: "is not for 10.0.0.1: it is for [master.example]", refuse: "bad certificate"},
		"another cell's master":       {client: func(c *Client) { c.Cell = "d" }, want: `is the master of cell "c": want cell "d"`, refuse: "bad certificate"},
		"any cell":                    {client: func(c *Client) { c.Cell = "" }, peer: "machine/m1"},
		"a machine as master":         {server: leaf(t, ca, Name{"c", Machine, "m2"}, nil), want: "incompatible key usage", refuse: "bad certificate"},
		"a server that is no master":  {server: leaf(t, ca, Name{"c", Operator, "eve"}, func(x *x509.Certificate) { x.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), want: "is operator/eve, not the master", refuse: "bad certificate"},
		"an expired master":           {client: func(c *Client) { c.Now = func() time.Time { return noon.Add(2 * time.Hour) } }, want: "it expired at 2026-03-01T13:00:00Z; the local time is 2026-03-01T14:00:00Z", refuse: "bad certificate"},
		"a clock at the beginning":    {client: func(c *Client) { c.Now = func() time.Time { return time.Unix(0, 0) } }, want: "the local time is 1970-01-01T00:00:00Z: check the clock", refuse: "bad certificate"},
		"a pin":                       {client: func(c *Client) { c.Authorities, c.Pin, c.Certificate = nil, Fingerprint(ca.Certificate), nil }, anon: true},
		"another pin":                 {client: func(c *Client) { c.Authorities, c.Pin = nil, Fingerprint(other.Certificate) }, want: "it is the master of another cell, or an impostor", refuse: "bad certificate"},
		"no certificate":              {client: func(c *Client) { c.Certificate = nil }, want: "certificate required", refuse: "client didn't provide a certificate"},
		"another authority's machine": {client: func(c *Client) { c.Certificate = leaf(t, other, Name{"c", Machine, "m1"}, nil).pair }, want: "unknown certificate authority", refuse: "unknown authority"},
		"one's own authority": {client: func(c *Client) {
			c.Certificate = sign(t, *leaf(t, other, Name{"c", Machine, "m1"}, nil).Certificate, nil).pair
		}, anon: true, want: "unknown certificate authority", refuse: "unknown authority"},
		"a machine of another cell": {client: func(c *Client) { c.Certificate = leaf(t, ca, Name{"d", Machine, "m1"}, nil).pair }, want: "EOF", refuse: `of machine/m1 of cell "d", and this is cell "c"`},
		"no name": {client: func(c *Client) {
			c.Certificate = leaf(t, ca, Name{"c", Machine, "m1"}, func(x *x509.Certificate) { x.URIs = nil }).pair
		}, want: "EOF", refuse: "has 0 URIs"},
		"an expired machine":            {later: 2 * time.Hour, want: "expired certificate", refuse: "has expired"},
		"a machine's certificate as CA": {client: func(c *Client) { c.Certificate = leaf(t, machine, Name{"c", Operator, "eve"}, nil).pair }, want: "unknown certificate authority", refuse: "unknown authority"},
		"TLS 1.2":                       {tls: func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS12, tls.VersionTLS12 }, want: "protocol version not supported", refuse: "unsupported versions"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, server := base, tt.server
			if tt.client != nil {
				tt.client(&c)
			}
			if server.Certificate == nil {
				server = master
			}
			cfg := ClientTLS(c)
			if tt.tls != nil {
				tt.tls(cfg)
			}
			peer, clientErr, serverErr := talk(t, cfg, ServerTLS(Server{
				Certificate: func() (*tls.Certificate, error) {
					return &tls.Certificate{Certificate: [][]byte{server.Raw, ca.Raw}, PrivateKey: server.key}, nil
				},
				Authorities: func() ([]*x509.Certificate, error) { return cas(ca)(), nil },
				Anonymous:   tt.anon,
				Now:         func() time.Time { return noon.Add(tt.later) },
			}))
			says(t, "client", clientErr, tt.want)
			says(t, "server", serverErr, tt.refuse)
			got := ""
			if peer != nil {
				got = peer.String()
			}
			if got != tt.peer {
				t.Errorf("peer %q, want %q", got, tt.peer)
			}
		})
	}
}

func says(t *testing.T, who string, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: error %v, want %q", who, err, want)
	}
}

// TestPlain talks to the server without TLS.
func TestPlain(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	server := ServerTLS(Server{
		Certificate: leaf(t, ca, Name{"c", Master, "master"}, nil).pair,
		Authorities: func() ([]*x509.Certificate, error) { return []*x509.Certificate{ca.Certificate}, nil },
		Now:         clock,
	})
	here, there := net.Pipe()
	defer here.Close()
	go func() {
		_, _ = io.WriteString(there, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		_, _ = io.Copy(io.Discard, there)
	}()
	err := tls.Server(here, server).Handshake()
	var header tls.RecordHeaderError
	if !errors.As(err, &header) {
		t.Errorf("%v, want one about the record", err)
	}
}

func TestOf(t *testing.T) {
	t.Parallel()
	for uri, want := range map[string]string{
		"muster://c/machine/m1":    "",
		"muster://c/operator/ada":  "",
		"muster://c/machine/M1":    "want lower-case",
		"muster://c/machine/a/b":   "want lower-case",
		"muster://c/root/m1":       `role "root": want one of [master machine operator read-only plan]`,
		"muster://c/machine":       "empty name",
		"muster:///machine/m1":     "cell: empty name",
		"muster://c:1/machine/m1":  "cell: name",
		"spiffe://c/machine/m1":    "want muster://",
		"muster://c/machine/m1?a":  "want muster://",
		"muster://u@c/machine/m1":  "want muster://",
		"muster:c/machine/m1":      "cell: empty name",
		"muster://c/machine/m%31":  "want muster://",
		"muster://c//machine/m1":   `role ""`,
		"muster://c/machine/m1#ab": "want muster://",
	} {
		u, err := url.Parse(uri)
		if err != nil {
			t.Fatal(err)
		}
		n, err := Of(&x509.Certificate{URIs: []*url.URL{u}})
		says(t, uri, err, want)
		if err == nil && n.URI().String() != uri {
			t.Errorf("%s: %s", uri, n.URI())
		}
	}
	if _, err := Of(&x509.Certificate{URIs: make([]*url.URL, 2)}); err == nil {
		t.Error("two URIs were taken")
	}
}
