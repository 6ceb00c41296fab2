package main

import (
	"cmp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/schema"
)

// etcdFlags say which etcd cluster keeps the cell's documents.
type etcdFlags struct {
	endpoints, ca, cert, key string
	lease                    time.Duration
}

func (f *etcdFlags) add(c *cobra.Command) {
	s := c.Flags()
	s.StringVar(&f.endpoints, "etcd", "", "etcd cluster with the cell's state, https://HOST:PORT[,https://…] (default: an etcd within this process, in the data directory)")
	s.StringVar(&f.ca, "etcd-ca", "", "file with the certificate authorities of the etcd members, in PEM (default: the system's)")
	s.StringVar(&f.cert, "etcd-cert", "", "file with the client certificate for etcd; read for each connection, so it can be renewed")
	s.StringVar(&f.key, "etcd-key", "", "file with the key of that certificate")
	s.DurationVar(&f.lease, "etcd-lease", store.LeaseDefault, "lease of the leader: another master takes over when it was not renewed for this long, 2s to 10m")
}

// config returns what the flags say; without --etcd, no endpoints.
func (f *etcdFlags) config() (store.ClusterConfig, error) {
	c := store.ClusterConfig{CAFile: f.ca, CertFile: f.cert, KeyFile: f.key, Lease: f.lease}
	if f.endpoints == "" {
		if f.ca+f.cert+f.key != "" {
			return c, invalid("give --etcd https://HOST:PORT, too", "certificates for etcd, and no --etcd")
		}
		if f.lease != store.LeaseDefault {
			return c, invalid("give --etcd https://HOST:PORT, too: with an etcd of its own there is no other master", "--etcd-lease %s, and no --etcd", f.lease)
		}
		return c, nil
	}
	if f.lease < 2*time.Second || f.lease > 10*time.Minute {
		return c, invalid("such as --etcd-lease 10s", "--etcd-lease %s: want 2s to 10m", f.lease)
	}
	c.Endpoints = strings.Split(f.endpoints, ",")
	if err := c.Check(); err != nil {
		message, hint := schema.HintOf(err)
		return c, invalid(cmp.Or(hint, "--etcd-ca, --etcd-cert and --etcd-key name files in PEM"), "--etcd: %s", strings.TrimPrefix(message, "etcd: "))
	}
	return c, nil
}
