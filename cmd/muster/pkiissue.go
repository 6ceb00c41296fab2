package main

import (
	"crypto/x509"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler/pki"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/identity"
)

// issueRun is one run of issue.
type issueRun struct {
	dir        pkiDir
	name, role string
	file       string
	hosts      []string
	life       lifeFlag
}

func newPKIIssue(std stdio) *cobra.Command {
	var r issueRun
	var out *outputFlag
	c := &cobra.Command{
		Use:   "issue NAME --role ROLE",
		Short: "issue a certificate for a user, a program or the master",
		Long: `Issue a certificate and its key for a user, a program or the master, in one file with
the authority's certificate. A file with a certificate of the same name is replaced.

  operator    may use all of the API
  read-only   may use the read-only part of the API, such as Prometheus
  plan        may have what muster plan needs of the cell, without values of environment
              variables, files and secrets: for CI
  master      the master's own certificate; NAME is master and may be left out, --host
              defaults to the hosts of the previous certificate, and a running master
              loads the new file by itself

Machines obtain theirs when they join: see muster pki token.`,
		Example: `  muster pki issue ada --role operator
  muster pki issue prometheus --role read-only --life 365d --out /etc/prometheus/muster.pem
  muster pki issue ci --role plan --life 365d
  muster pki issue --role master`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				r.name = args[0]
			}
			i, err := r.run(cmd.Flags().Changed("life"))
			if err != nil {
				return err
			}
			if out.value == "json" {
				return printJSON(std.out, i)
			}
			err = screen.Fprintf(std.out, "%s of cell %s in %s, expires %s\n", i.Name, i.Cell, i.File, day(i.Expires))
			return err
		},
	}
	r.dir.add(c)
	c.Flags().StringVar(&r.role, "role", "", "operator, read-only, plan or master")
	c.Flags().StringArrayVar(&r.hosts, "host", nil, "name or address of the master, for the role master; may be repeated")
	r.life = lifeFlag(clientLife)
	c.Flags().Var(&r.life, "life", "how long it is valid; for the role master 365d unless it is given")
	c.Flags().StringVar(&r.file, "out", "", "file to write (default: NAME.pem in the current directory; for the role master, master.pem of the authority)")
	out = addOutput(c, "text", "json")
	return c
}

func (r *issueRun) run(lifeGiven bool) (issued, error) {
	role := identity.Role(r.role)
	switch {
	case role == identity.Machine:
		return issued{}, invalid("give the machine a token: muster pki token "+r.name, "a machine's certificate is not issued: its key never leaves it")
	case role != identity.Master && !role.Client():
		return issued{}, invalid("such as --role operator", "--role %q: want operator, read-only, plan or master", r.role)
	case role == identity.Master && r.name == "":
		r.name = pki.MasterName
	case r.name == "":
		return issued{}, invalid("usage: muster pki issue NAME --role ROLE", "muster pki issue: NAME is missing")
	case len(r.hosts) > 0 && role != identity.Master:
		return issued{}, invalid("leave it out", "--host is for the role master, and this is %s", role)
	}
	dir, err := r.dir.open()
	if err != nil {
		return issued{}, err
	}
	request := pki.Request{Name: identity.Name{Cell: dir.Cell, Role: role, Name: r.name}, Life: time.Duration(r.life), Now: time.Now()}
	if err := request.Name.Check(); err != nil {
		return issued{}, invalid("a name such as ada or ci-1", "%w", err)
	}
	if role == identity.Master {
		if request.Hosts, err = r.masterHosts(dir); err != nil {
			return issued{}, err
		}
		if !lifeGiven {
			request.Life = masterLife
		}
	}
	c, err := r.write(dir, request)
	if err != nil {
		return issued{}, err
	}
	return issued{request.Name.String(), dir.Cell, r.file, c.NotAfter, request.Hosts}, nil
}

// masterHosts returns what the master's next certificate is for.
func (r *issueRun) masterHosts(dir *pki.Directory) ([]string, error) {
	hosts := withLocal(r.hosts)
	if len(r.hosts) == 0 {
		var err error
		if hosts, err = dir.MasterHosts(); err != nil {
			return nil, invalid("give --host", "the names and addresses of the master are not known: %w", err)
		}
	}
	if err := pki.CheckHosts(hosts); err != nil {
		return nil, invalid("give each --host as machines and people will type it, without a port", "%w", err)
	}
	return hosts, nil
}

// write writes the file.
func (r *issueRun) write(dir *pki.Directory, request pki.Request) (*x509.Certificate, error) {
	if r.file == "" {
		r.file = r.name + ".pem"
		if request.Name.Role == identity.Master {
			r.file = dir.MasterFile()
		}
	}
	c, err := dir.Issue(request, r.file)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil, invalid("name another file with --out", "%w", err)
	case errors.Is(err, fs.ErrNotExist):
		return nil, invalid("make the directory "+filepath.Dir(r.file)+", or name another file with --out", "%w", err)
	}
	return c, err
}

func newPKIToken(std stdio) *cobra.Command {
	var dir pkiDir
	var out *outputFlag
	life := lifeFlag(tokenLife)
	c := &cobra.Command{
		Use:   "token MACHINE",
		Short: "create a join token for one machine",
		Long: `Create a token with which one machine can join the cell once, and print it. The agent
reads it from --token-file; it says which cell and machine this is and which master to
trust. Anyone who has the token can join as the machine: treat it as a password.

A machine that has joined needs no further token, unless its certificate expired while
it was off, it was revoked, or its state directory was lost. A new token for its name
then revokes what was issued before.`,
		Example: `  muster pki token m-17 >m-17.token
  muster-agent --master master.example.com:7421 --token-file m-17.token --state-dir /var/lib/muster-agent`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := schema.CheckName(args[0]); err != nil {
				return invalid("a name such as m-17; what the machine is called in the cell", "machine: %w", err)
			}
			if time.Duration(life) > maxToken {
				return invalid("give --expires 30d or less: a token is for now", "a token that expires in %s", life.String())
			}
			d, err := dir.open()
			if err != nil {
				return err
			}
			now := time.Now()
			text, err := d.Token(args[0], now, time.Duration(life))
			if err != nil {
				return err
			}
			if out.value == "json" {
				return printJSON(std.out, struct {
					Cell    string    `json:"cell"`
					Machine string    `json:"machine"`
					Expires time.Time `json:"expires"`
					Token   string    `json:"token"`
				}{d.Cell, args[0], now.Truncate(time.Second).Add(time.Duration(life)).UTC(), text})
			}
			err = screen.Fprintf(std.out, "%s\n", text)
			return err
		},
	}
	dir.add(c)
	c.Flags().Var(&life, "expires", "how long it can be used, at most 30d")
	out = addOutput(c, "text", "json")
	return c
}

func newPKIRevoke(std stdio) *cobra.Command {
	var dir pkiDir
	var out *outputFlag
	c := &cobra.Command{
		Use:   "revoke ROLE/NAME",
		Short: "revoke the certificates and tokens of a machine or a user",
		Long: `Revoke all certificates and join tokens that were issued for a machine or a user so
far. A running master that uses this directory closes their connections within seconds
and refuses new ones. Certificates and tokens that are issued later are valid.

The tasks of a revoked machine keep running, and the cell treats the machine as any
other that is silent.`,
		Example: `  muster pki revoke machine/m-17
  muster pki revoke operator/ada`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			d, err := dir.open()
			if err != nil {
				return err
			}
			n, err := identity.Parse(d.Cell, args[0])
			if err != nil || n.Role == identity.Master {
				return invalid("such as machine/m-17, operator/ada or read-only/prometheus", "%q: want ROLE/NAME of a machine or a client", args[0])
			}
			at := time.Now().UTC().Truncate(time.Second)
			if err := d.Revoke(n, at); err != nil {
				return err
			}
			// Certificates and tokens know whole seconds: what is issued after
			// this command is to be later than it.
			time.Sleep(time.Until(at.Add(time.Second)))
			if out.value == "json" {
				return printJSON(std.out, struct {
					Name string    `json:"name"`
					At   time.Time `json:"at"`
				}{n.String(), at})
			}
			err = screen.Fprintf(std.out, "%s: all that was issued until %s is void\n", n, at.Format(time.RFC3339))
			return err
		},
	}
	dir.add(c)
	out = addOutput(c, "text", "json")
	return c
}

// shown is what show prints of a certificate.
type shown struct {
	Name        string    `json:"name"`
	Cell        string    `json:"cell"`
	Issued      time.Time `json:"issued"`
	Expires     time.Time `json:"expires"`
	Hosts       []string  `json:"hosts,omitempty"`
	Fingerprint string    `json:"fingerprint"`
}

func newPKIShow(std stdio) *cobra.Command {
	var out *outputFlag
	c := &cobra.Command{
		Use:     "show FILE",
		Short:   "show the subject and the validity of a certificate",
		Example: "  muster pki show ada.pem\n  muster pki show /etc/muster/pki/master.pem",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := pki.Read(args[0])
			if err != nil {
				return invalid("want a file that `muster pki issue` wrote, or master.pem of an authority", "%w", err)
			}
			n, err := identity.Of(c)
			if err != nil {
				return invalid("want a file that `muster pki issue` wrote, or master.pem of an authority", "%s: %w", args[0], err)
			}
			s := shown{n.String(), n.Cell, identity.Issued(c).UTC(), c.NotAfter.UTC(), identity.Hosts(c), identity.Fingerprint(c)}
			if out.value == "json" {
				return printJSON(std.out, s)
			}
			err = screen.Fprintf(std.out, "%s of cell %s\nissued       %s\nexpires      %s\nfingerprint  %s\n", s.Name, s.Cell, day(s.Issued), day(s.Expires), s.Fingerprint)
			if err == nil && len(s.Hosts) > 0 {
				err = screen.Fprintf(std.out, "for          %s\n", strings.Join(s.Hosts, ", "))
			}
			return err
		},
	}
	out = addOutput(c, "text", "json")
	return c
}
