package storetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// Certs writes ca.pem, and a certificate for loopback and further addresses with its
// key, which serves members and clients; it returns the directory.
func Certs(t *testing.T, addresses ...net.IP) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	must(err)
	write("ca.pem", "CERTIFICATE", der)
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "member"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour),
		IPAddresses: append(addresses, net.IPv4(127, 0, 0, 1)), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err = x509.CreateCertificate(rand.Reader, leaf, ca, own.Public(), key)
	must(err)
	write("cert.pem", "CERTIFICATE", der)
	der, err = x509.MarshalECPrivateKey(own)
	must(err)
	write("key.pem", "EC PRIVATE KEY", der)
	return dir
}

// Cluster is an etcd cluster on loopback, as muster finds it: it belongs to
// somebody else, and wants client certificates.
type Cluster struct {
	// Certs is the directory of ca.pem, cert.pem and key.pem.
	Certs string
	URLs  []string
	// Stop ends a member each.
	Stop []func()

	configs []*embed.Config
}

func loopbackURL(t *testing.T) url.URL {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return url.URL{Scheme: "https", Host: l.Addr().String()}
}

// Start starts n members, which end with the test.
func Start(t *testing.T, n int) *Cluster {
	t.Helper()
	c := &Cluster{Certs: Certs(t)}
	var peers []string
	var members []*embed.Etcd
	cfgs := make([]*embed.Config, n)
	for i := range cfgs {
		cfg := embed.NewConfig()
		cfg.Name, cfg.Dir = fmt.Sprint("m", i), t.TempDir()
		cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
		cfg.LogLevel = "error"
		cfg.TickMs, cfg.ElectionMs = 20, 400
		client, peer := loopbackURL(t), loopbackURL(t)
		cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
		cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
		cfg.ClientTLSInfo, cfg.PeerTLSInfo = secure(c.Certs), secure(c.Certs)
		peers = append(peers, cfg.Name+"="+peer.String())
		c.URLs = append(c.URLs, client.String())
		cfgs[i] = cfg
	}
	for _, cfg := range cfgs {
		cfg.InitialCluster = strings.Join(peers, ",")
		c.Stop = append(c.Stop, nil)
		members = append(members, c.start(t, len(c.Stop)-1, cfg))
	}
	c.configs = cfgs
	for _, e := range members {
		ready(t, e)
	}
	return c
}

func (c *Cluster) start(t *testing.T, i int, cfg *embed.Config) *embed.Etcd {
	t.Helper()
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.Stop[i] = sync.OnceFunc(e.Close)
	t.Cleanup(c.Stop[i])
	return e
}

func ready(t *testing.T, e *embed.Etcd) {
	t.Helper()
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(30 * time.Second):
		t.Fatal("the cluster does not start")
	}
}

// Restart starts a member that was stopped, with what it had on its disk.
func (c *Cluster) Restart(t *testing.T, i int) {
	t.Helper()
	ready(t, c.start(t, i, c.configs[i]))
}
