package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/reconciler/pki"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/reconciler/web/client"
	"github.com/musterhq/muster/schema"
)

// labelFlag picks jobs by their labels.
type labelFlag struct{ selector schema.Selector }

func (f *labelFlag) add(c *cobra.Command) {
	c.Flags().VarP(f, "selector", "l", "label selector: tier=front,env in (prod,test),!canary; every job also has the labels muster/user, muster/job, muster/kind and muster/band")
}

func (f *labelFlag) String() string { return f.selector.String() }

// Type names the flag's type in the help.
func (f *labelFlag) Type() string { return "labels" }

// Set takes a selector.
func (f *labelFlag) Set(s string) (err error) {
	f.selector, err = schema.ParseSelector(s)
	return err
}

// group returns what the flag and the operand, if there is one, name together.
func (f *labelFlag) group(args []string) status.Group {
	g := status.Group{Selector: f.selector}
	if len(args) > 0 {
		g.Name = args[0]
	}
	return g
}

// masterFlag is how a command that looks finds the cell.
type masterFlag struct{ url, ca, cert, key string }

func (f *masterFlag) add(c *cobra.Command) {
	s := c.Flags()
	s.StringVar(&f.url, "master", "", "address of the cell's master, such as unix:/var/lib/muster/link/api.sock or https://HOST:7420 (default: $MUSTER_MASTER)")
	s.StringVar(&f.cert, "cert", "", "client certificate for a master over https, a file written by muster pki issue (default: $MUSTER_CERT)")
	s.StringVar(&f.key, "key", "", "key of the client certificate, a file (default: $MUSTER_KEY, else that of --cert)")
	s.StringVar(&f.ca, "ca", "", "certificate authority of the master's certificate, a file (default: $MUSTER_CA, else that of --cert)")
}

// client returns a client of the cell that the flag or the environment names.
func (f *masterFlag) client() (*client.Client, error) {
	url := cmp.Or(f.url, os.Getenv("MUSTER_MASTER"))
	if url == "" {
		return nil, invalid("give --master ADDRESS or set MUSTER_MASTER; `muster dev` and `muster master` print the address in their first line", "which cell? no master is given")
	}
	secure, err := f.secure(url)
	if err != nil {
		return nil, err
	}
	c, err := client.NewSecure(url, secure)
	var bad *client.Error
	if errors.As(err, &bad) {
		return nil, &failure{code: exitInvalid, err: err, hint: bad.Hint}
	}
	return c, err
}

// secure returns what the master is shown and believed for; nil for http. The
// files are read now, so that a mistake is said at once, and again for each
// connection, since a long look may outlast a certificate.
func (f *masterFlag) secure(url string) (*client.Secure, error) {
	typed := f.cert != "" || f.key != "" || f.ca != ""
	if !typed && (strings.HasPrefix(url, "http://") || strings.HasPrefix(url, "unix:")) {
		return nil, nil // what the environment has is for other cells
	}
	cert := cmp.Or(f.cert, os.Getenv("MUSTER_CERT"))
	if cert == "" {
		if typed {
			return nil, invalid("give --cert or MUSTER_CERT: a file that `muster pki issue` wrote", "--key and --ca go with a certificate, and none is named")
		}
		return nil, nil
	}
	key := cmp.Or(f.key, os.Getenv("MUSTER_KEY"), cert)
	ca := cmp.Or(f.ca, os.Getenv("MUSTER_CA"), cert)
	const hint = "--cert names a file that `muster pki issue` wrote; --key and --ca are for certificates in several files"
	if _, err := pki.Pair(cert, key); err != nil {
		return nil, invalid(hint, "%w", err)
	}
	authorities, err := pki.Authorities(ca)
	if err != nil {
		return nil, invalid(hint, "%w", err)
	}
	return &client.Secure{
		Certificate: func() (*tls.Certificate, error) { return pki.Pair(cert, key) },
		Authorities: func() []*x509.Certificate {
			if again, err := pki.Authorities(ca); err == nil {
				return again
			}
			return authorities // it is being replaced
		},
	}, nil
}
