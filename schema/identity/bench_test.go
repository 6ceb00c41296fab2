package identity

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
)

// BenchmarkHandshake is one machine's connection with both its ends: what a
// master that starts again pays for each of its machines, twice.
func BenchmarkHandshake(b *testing.B) {
	ca := newAuthority(b)
	master, machine := leaf(b, ca, Name{"c", Master, "master"}, nil), leaf(b, ca, Name{"c", Machine, "m1"}, nil)
	server := ServerTLS(Server{
		Certificate: master.pair,
		Authorities: func() ([]*x509.Certificate, error) { return []*x509.Certificate{ca.Certificate}, nil }, Now: clock,
	})
	client := ClientTLS(Client{
		Cell: "c", Host: "master.example", Certificate: machine.pair, Now: clock,
		Authorities: func() []*x509.Certificate { return []*x509.Certificate{ca.Certificate} },
	})
	for b.Loop() {
		here, there := net.Pipe()
		done := make(chan error, 1)
		go func() { done <- tls.Server(there, server).Handshake() }()
		if err := tls.Client(here, client).Handshake(); err != nil {
			b.Fatal(err)
		}
		if err := <-done; err != nil {
			b.Fatal(err)
		}
		_, _ = here.Close(), there.Close()
	}
}
