package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/cmd/internal/screen"
	"github.com/musterhq/muster/reconciler/pki"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/identity"
)

// Lives of what is issued. A machine's certificate is renewed by itself; these
// are not.
const (
	masterLife = 365 * 24 * time.Hour
	clientLife = 90 * 24 * time.Hour
	tokenLife  = time.Hour
	maxToken   = 30 * 24 * time.Hour
)

func newPKI(std stdio) *cobra.Command {
	c := &cobra.Command{
		Use:   "pki",
		Short: "manage the certificates and join tokens of a cell",
		Long: `Manage the certificates and join tokens of a cell. A cell has one certificate authority,
a directory of files. Masters, machines and users authenticate to each other with its
certificates, over TLS 1.3. The commands only use the directory; they need no running
master.`,
		Example: `  muster pki init --cell eu-1 --host master.example.com
  muster pki token m-17 >m-17.token
  muster pki issue ada --role operator
  muster pki revoke machine/m-17`,
	}
	c.AddCommand(newPKIInit(std), newPKIIssue(std), newPKIToken(std), newPKIRevoke(std), newPKIShow(std))
	return c
}

// pkiDir is the flag for the authority's directory.
type pkiDir struct{ path string }

func (d *pkiDir) add(c *cobra.Command) {
	c.Flags().StringVar(&d.path, "dir", "", "directory of the cell's authority (default: /etc/muster/pki for root, else muster/pki in the user's configuration directory)")
}

func (d *pkiDir) resolve() (string, error) {
	switch {
	case d.path != "":
		return filepath.Abs(d.path)
	case os.Geteuid() == 0:
		return "/etc/muster/pki", nil
	}
	base, err := os.UserConfigDir()
	if err != nil {
		return "", invalid("give --dir", "no directory for the authority: %w", err)
	}
	return filepath.Join(base, "muster", "pki"), nil
}

// open opens the authority that the flag names.
func (d *pkiDir) open() (*pki.Directory, error) {
	path, err := d.resolve()
	if err != nil {
		return nil, err
	}
	dir, err := pki.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, invalid("create one with `muster pki init`, or name its directory with --dir", "no authority in %s: %w", path, err)
	case err != nil:
		return nil, invalid("--dir names the directory of `muster pki init`", "authority in %s: %w", path, err)
	}
	return dir, nil
}

// lifeFlag is a duration that may be in days.
type lifeFlag time.Duration

func (f *lifeFlag) String() string {
	d := time.Duration(*f)
	if day := 24 * time.Hour; d >= day && d%day == 0 {
		return strconv.Itoa(int(d/day)) + "d"
	}
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}

// Type names the flag's type in the help.
func (f *lifeFlag) Type() string { return "duration" }

const maxDays = 36500 // a hundred years

// Set takes a duration such as 90d, 12h or 30m.
func (f *lifeFlag) Set(s string) error {
	d, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n int
		n, err = strconv.Atoi(days)
		d = time.Duration(n) * 24 * time.Hour
		if n < 0 || n > maxDays { // it would not fit into d
			err = strconv.ErrRange
		}
	}
	if err != nil || d <= 0 || d > maxDays*24*time.Hour {
		return fmt.Errorf("want a duration such as 90d, 12h or 30m, %dd at most", maxDays)
	}
	*f = lifeFlag(d)
	return nil
}

// local is what every master's certificate is for, so that commands on its own
// machine work.
var local = []string{"localhost", "127.0.0.1", "::1"}

// withLocal returns hosts and those of local that are not among them.
func withLocal(hosts []string) []string {
	out := slices.Clone(hosts)
	for _, h := range local {
		if !slices.Contains(out, h) {
			out = append(out, h)
		}
	}
	return out
}

// issued is what is printed of a certificate.
type issued struct {
	Name    string    `json:"name"` // ROLE/NAME
	Cell    string    `json:"cell"`
	File    string    `json:"file"`
	Expires time.Time `json:"expires"`
	Hosts   []string  `json:"hosts,omitempty"`
}

func newPKIInit(std stdio) *cobra.Command {
	var dir pkiDir
	var cell string
	var hosts []string
	var out *outputFlag
	life := lifeFlag(masterLife)
	c := &cobra.Command{
		Use:   "init --cell CELL --host HOST",
		Short: "create the certificate authority of a cell, and its master's certificate",
		Long: `Create the certificate authority of a cell, and its master's certificate. The directory
then has ca.pem and ca.key, the authority, and master.pem, the master's certificate and
key; the flag --pki of the master names it. Whoever can read ca.key can impersonate
anyone in the cell: only its owner can read the directory; protect its backups too.

--host gives the names and addresses by which machines and users reach the master;
localhost is added. The authority is valid for ten years.`,
		Example: `  muster pki init --cell eu-1 --host master.example.com --host 10.0.0.1
  muster master --repo /srv/fleet.git --data-dir /var/lib/muster --pki /etc/muster/pki --listen :7420 --link-listen :7421`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cell == "" || len(hosts) == 0 {
				return invalid("usage: "+cmd.UseLine(), "muster pki init needs --cell and --host")
			}
			path, err := dir.resolve()
			if err != nil {
				return err
			}
			return pkiInit(std, pkiNew{path, cell, withLocal(hosts), time.Duration(life), out.value})
		},
	}
	dir.add(c)
	c.Flags().StringVar(&cell, "cell", "", "name of the cell")
	c.Flags().StringArrayVar(&hosts, "host", nil, "name or address of the master; may be repeated")
	c.Flags().Var(&life, "life", "validity of the master's certificate")
	out = addOutput(c, "text", "json")
	return c
}

// pkiNew says which authority is to be made.
type pkiNew struct {
	path, cell string
	hosts      []string
	life       time.Duration
	output     string
}

func pkiInit(std stdio, n pkiNew) error {
	if err := schema.CheckName(n.cell); err != nil {
		return invalid("take the name of a cell that the config repository declares", "--cell: %w", err)
	}
	if err := pki.CheckHosts(n.hosts); err != nil {
		return invalid("give each --host as machines and people will type it, without a port", "%w", err)
	}
	now := time.Now()
	dir, err := pki.Init(n.path, n.cell, now)
	switch {
	case errors.Is(err, fs.ErrExist):
		return invalid("name another directory with --dir; `muster pki issue --role master` makes a new certificate for the master", "%w", err)
	case err != nil:
		return err
	}
	r := pki.Request{Name: identity.Name{Cell: n.cell, Role: identity.Master, Name: pki.MasterName}, Hosts: n.hosts, Life: n.life, Now: now}
	cert, err := dir.Issue(r, dir.MasterFile())
	if err != nil {
		return err
	}
	if n.output == "json" {
		return printJSON(std.out, struct {
			Dir         string `json:"dir"`
			Cell        string `json:"cell"`
			Fingerprint string `json:"fingerprint"`
			Master      issued `json:"master"`
		}{n.path, n.cell, identity.Fingerprint(dir.CA), issued{r.Name.String(), n.cell, dir.MasterFile(), cert.NotAfter, n.hosts}})
	}
	err = screen.Fprintf(std.out, `authority of cell %s in %s
fingerprint  %s
master.pem   for %s, expires %s

next: muster master … --pki %s --listen :7420 --link-listen :7421
      muster pki token MACHINE, for each machine
      muster pki issue NAME --role operator, for each person
`, n.cell, n.path, identity.Fingerprint(dir.CA), strings.Join(n.hosts, ", "), day(cert.NotAfter), n.path)
	return err
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }
