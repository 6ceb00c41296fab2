package storetest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// Member is a member that runs as a process of its own, so that it can be killed.
type Member struct {
	Name         string
	Dir, Certs   string // its data, and the directory of Certs
	Client, Peer string // URLs
	// Initial are the members of the cluster that it begins with, as NAME=PEER,…;
	// Joins says that the cluster is there already.
	Initial string
	Joins   bool
	// Alone makes a cluster of what this member has, without the others, which are lost.
	Alone bool
}

// Serve runs the member until SIGTERM, and writes a line when it is ready.
func (m Member) Serve(out io.Writer) error {
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir, cfg.InitialCluster = m.Name, m.Dir, m.Initial
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.LogLevel = "error"
	cfg.TickMs, cfg.ElectionMs = 50, 500
	if m.Joins {
		cfg.ClusterState = embed.ClusterStateFlagExisting
	}
	cfg.ForceNewCluster = m.Alone
	client, err := url.Parse(m.Client)
	if err != nil {
		return err
	}
	peer, err := url.Parse(m.Peer)
	if err != nil {
		return err
	}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	cfg.ClientTLSInfo, cfg.PeerTLSInfo = secure(m.Certs), secure(m.Certs)
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	defer e.Close()
	select {
	case <-e.Server.ReadyNotify():
		fmt.Fprintln(out, "ready")
	case <-stop.Done():
		return nil
	}
	select {
	case <-stop.Done():
		return nil
	case <-e.Server.StopNotify():
		return fmt.Errorf("member %s has stopped", m.Name)
	}
}

// Join has the cluster of those at endpoints expect m, which is to be started next. A
// member of the same name, whose disk is lost, is taken out of it before.
func (m Member) Join(endpoints []string) (err error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(m.Certs, "cert.pem"), filepath.Join(m.Certs, "key.pem"))
	if err != nil {
		return err
	}
	pem, err := os.ReadFile(filepath.Join(m.Certs, "ca.pem"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, Logger: zap.NewNop(), DialTimeout: 5 * time.Second,
		TLS: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS12},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	list, err := client.MemberList(ctx)
	if err != nil {
		return err
	}
	for _, other := range list.Members {
		if other.GetName() != m.Name {
			continue
		}
		if _, err := client.MemberRemove(ctx, other.GetID()); err != nil {
			return err
		}
	}
	_, err = client.MemberAdd(ctx, []string{m.Peer})
	return err
}

func secure(certs string) transport.TLSInfo {
	return transport.TLSInfo{
		CertFile: filepath.Join(certs, "cert.pem"), KeyFile: filepath.Join(certs, "key.pem"),
		TrustedCAFile: filepath.Join(certs, "ca.pem"), ClientCertAuth: true,
	}
}
