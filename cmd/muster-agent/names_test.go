package main

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"github.com/musterhq/muster/nodeagent/loop"
	"github.com/musterhq/muster/schema"
	"github.com/prometheus/client_golang/prometheus"
)

// TestNames: what a master has said is answered by DNS, and by the next agent, too, which finds no master.
func TestNames(t *testing.T) {
	t.Parallel()
	dir, at := t.TempDir(), freeAddress(t)
	log := slog.New(slog.DiscardHandler)
	life := func(say []schema.DirectoryEntry) {
		t.Helper()
		f := &flags{name: "m1"}
		f.dns.listen, f.dns.upstream = []string{at}, []string{"127.0.0.1:1"}
		if err := f.dns.check(); err != nil {
			t.Fatal(err)
		}
		a := &agent{cell: "local"}
		n, err := a.openNames(t.Context(), f, dir, &loop.Config{Log: log, Metrics: prometheus.NewRegistry(), Damages: loop.NewDamages(dir, log)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- n.run(ctx) }()
		if say != nil {
			n.known.Apply(schema.DirectoryChange{Set: say}, func() {})
		}
		r := new(dns.Msg)
		r.SetQuestion("0.web.ann.local.example.org.", dns.TypeA)
		m, err := dns.ExchangeContext(t.Context(), r, at)
		if err != nil || len(m.Answer) != 1 || !strings.HasSuffix(m.Answer[0].String(), "\t10.0.0.9") {
			t.Errorf("%v %v", m, err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	life([]schema.DirectoryEntry{
		{Cell: &schema.DirectoryCell{Name: "local", Network: schema.CellNetwork{Domain: "example.org"}}},
		{Tasks: &schema.DirectoryTasks{User: "ann", Job: "web", Tasks: []schema.DirectoryTask{{Machine: "m2", Address: netip.MustParseAddr("10.0.0.9")}}}},
	})
	life(nil)
}

// freeAddress returns an address on loopback that no one listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
