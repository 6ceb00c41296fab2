package linktest

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhq/muster/nodeagent/credential"
	agentlink "github.com/musterhq/muster/nodeagent/link"
	masterlink "github.com/musterhq/muster/reconciler/link"
	"github.com/musterhq/muster/reconciler/pki"
	"github.com/musterhq/muster/reconciler/store"
	"github.com/musterhq/muster/schema/identity"
)

// secure is a cell whose machines come over TCP.
type secure struct {
	t      *testing.T
	dir    *pki.Directory
	memory *store.Memory
	life   time.Duration
	addr   string // of the master, kept over restarts
	m      *master
	said   journal
	stall  time.Duration // of stores; 0: as they have it

	stalled, without atomic.Int64 // questions of machines to which nothing came, and machines that were left out
}

func newSecure(t *testing.T, life time.Duration) *secure {
	t.Helper()
	c := &secure{t: t, memory: store.NewMemory(), life: life, addr: "127.0.0.1:0", m: newMaster()}
	var err error
	if c.dir, err = pki.Init(filepath.Join(t.TempDir(), "pki"), "c", time.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.dir.Issue(pki.Request{
		Name: identity.Name{Cell: "c", Role: identity.Master, Name: "master"}, Hosts: []string{"127.0.0.1"}, Life: time.Hour, Now: time.Now(),
	}, c.dir.MasterFile()); err != nil {
		t.Fatal(err)
	}
	return c
}

// serve starts a master on the cell's store.
func (c *secure) serve() (s *masterlink.Server, stop func()) {
	c.t.Helper()
	ledger, err := c.memory.Open("c")
	if err == nil {
		err = ledger.Campaign(c.t.Context(), "test")
	}
	if err != nil {
		c.t.Fatal(err)
	}
	authority, err := pki.NewAuthority(c.t.Context(), pki.Config{Dir: c.dir, Ledger: ledger, Life: c.life, Log: c.said.log()})
	if err != nil {
		c.t.Fatal(err)
	}
	l, err := net.Listen("tcp", c.addr)
	if err != nil {
		c.t.Fatal(err)
	}
	c.addr = l.Addr().String()
	s = masterlink.New(masterlink.Config{
		Cell: "c", Master: c.m, Sources: c.m, PullEvery: 10 * time.Millisecond, Log: c.said.log(),
		Secure: &masterlink.Secure{TLS: authority.TLS(true, "h2"), Authority: authority},
	})
	return s, background(c.t, func(ctx context.Context) error { return s.Serve(ctx, l) })
}

func (c *secure) token(machine string) string {
	c.t.Helper()
	text, err := c.dir.Token(machine, time.Now(), time.Minute)
	if err != nil {
		c.t.Fatal(err)
	}
	return text
}

// write writes a token into a file and returns its name.
func (c *secure) write(file, token string) string {
	c.t.Helper()
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return file
}

// open opens the credential of a machine with its state in dir.
func (c *secure) open(dir string) *credential.Store {
	c.t.Helper()
	id, err := credential.Open(credential.Config{Dir: dir, TokenFile: filepath.Join(dir, "token")})
	if err != nil {
		c.t.Fatal(err)
	}
	return id
}

func (c *secure) config(dir string, a *agent, log *slog.Logger) agentlink.Config {
	return agentlink.Config{
		Cell: "c", Dial: c.addr, Identity: c.open(dir), Agent: a, Log: log,
		Backoff: agentlink.Backoff{Max: 50 * time.Millisecond, Refused: 50 * time.Millisecond},
	}
}

// agent runs a machine with its state in dir.
func (c *secure) agent(dir string, a *agent) (said *journal, stop func()) {
	c.t.Helper()
	said = &journal{}
	client := agentlink.New(c.config(dir, a, said.log()))
	return said, background(c.t, client.Run)
}

// TestJoinAndRenew joins by token, outlives several certificates in one session,
// and comes back after a restart without the token.
func TestJoinAndRenew(t *testing.T) {
	t.Parallel()
	c := newSecure(t, pki.MinLife)
	_, stopMaster := c.serve()
	dir, a := t.TempDir(), newAgent("m1")
	file := c.write(filepath.Join(dir, "token"), c.token("m1"))
	_, stop := c.agent(dir, a)
	eventually(t, "a report", func() bool { return c.m.count() > 0 })
	begin := time.Now()
	for time.Since(begin) < 2*pki.MinLife {
		if e := c.m.epoch("m1"); e != 1 {
			t.Fatalf("epoch %d: the session has ended", e)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if n := c.m.count(); n < 100 {
		t.Errorf("%d reports", n)
	}
	stop()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	stopMaster()
	c.serve()
	_, stop = c.agent(dir, a)
	eventually(t, "the machine to come back", func() bool { return c.m.epoch("m1") == 2 })
	stop()
	if info, err := os.Stat(filepath.Join(dir, "identity.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 { // the identity is there twice
		t.Errorf("the state directory holds %v, %v", left, err)
	}
}

// TestStolen has machines come with what is not theirs.
func TestStolen(t *testing.T) {
	t.Parallel()
	c := newSecure(t, time.Hour)
	c.serve()
	mine := t.TempDir()
	token := c.token("m1")
	c.write(filepath.Join(mine, "token"), token)
	first, stop := c.agent(mine, newAgent("m1"))
	eventually(t, "m1 to join", func() bool { return c.m.epoch("m1") == 1 })

	t.Run("a token that was used", func(t *testing.T) {
		dir := t.TempDir()
		c.write(filepath.Join(dir, "token"), token)
		err := agentlink.New(c.config(dir, newAgent("m1"), slog.New(slog.DiscardHandler))).Run(t.Context())
		if !errors.Is(err, agentlink.ErrNotJoined) || !strings.Contains(err.Error(), "the join token of machine m1 was used at") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("a certificate under another name", func(t *testing.T) {
		dir := t.TempDir()
		b, err := os.ReadFile(filepath.Join(mine, "identity.json"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "identity.json"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		c.write(filepath.Join(dir, "token"), token)
		said, stop := c.agent(dir, newAgent("m2"))
		eventually(t, "the refusal", func() bool {
			return said.has("the certificate is of machine m1, and the agent says that it is m2")
		})
		stop()
		if c.m.epoch("m2") != 0 {
			t.Error("m2 has joined")
		}
		_, err = credential.Open(credential.Config{Dir: dir, Machine: "m2"})
		if err == nil || !strings.Contains(err.Error(), "it is for machine m1, and this agent is m2") {
			t.Errorf("the agent itself: %v", err)
		}
	})
	t.Run("a token of another master", func(t *testing.T) {
		other, dir := newSecure(t, time.Hour), t.TempDir()
		c.write(filepath.Join(dir, "token"), other.token("m3"))
		said, stop := c.agent(dir, newAgent("m3"))
		eventually(t, "the refusal", func() bool { return said.has("it is the master of another cell, or an impostor") })
		stop()
	})
	if c.m.epoch("m1") != 1 {
		t.Error("m1 has lost its session")
	}
	// A token for the name that the cell's own people issued takes it over.
	t.Run("a new token", func(t *testing.T) {
		dir := t.TempDir()
		c.write(filepath.Join(dir, "token"), c.token("m1"))
		_, stopNew := c.agent(dir, newAgent("m1"))
		eventually(t, "the machine to join again", func() bool { return c.m.epoch("m1") >= 2 })
		eventually(t, "the other to be out", func() bool { return first.has("machine m1 joined with another key at") })
		stopNew()
	})
	stop()
}

// TestRevokedMachine takes a machine's certificate away while it is linked, and
// has it join with a new token that is put in its place.
func TestRevokedMachine(t *testing.T) {
	t.Parallel()
	c := newSecure(t, time.Hour)
	c.serve()
	dir, a := t.TempDir(), newAgent("m1")
	c.write(filepath.Join(dir, "token"), c.token("m1"))
	said, _ := c.agent(dir, a)
	eventually(t, "m1 to join", func() bool { return c.m.epoch("m1") == 1 })
	if err := c.dir.Revoke(identity.Name{Cell: "c", Role: identity.Machine, Name: "m1"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the refusal", func() bool { return said.has("machine/m1 was revoked at") })
	if e := c.m.epoch("m1"); e != 1 {
		t.Errorf("epoch %d", e)
	}
	eventually(t, "m1 to join again", func() bool {
		c.write(filepath.Join(dir, "token"), c.token("m1")) // one of the same second is revoked too
		return c.m.epoch("m1") >= 2
	})
}

// TestTwins runs two agents with one certificate: the one that came first has the
// name, and the other waits for it.
func TestTwins(t *testing.T) {
	t.Parallel()
	c := newSecure(t, time.Hour)
	c.serve()
	dir, second := t.TempDir(), newAgent("m1")
	c.write(filepath.Join(dir, "token"), c.token("m1"))
	_, stop := c.agent(dir, newAgent("m1"))
	eventually(t, "m1 to join", func() bool { return c.m.epoch("m1") == 1 })
	said, _ := c.agent(dir, second)
	eventually(t, "the second to be refused", func() bool { return said.has("machine m1: this agent") && said.has("the other one is connected") })
	if e := c.m.epoch("m1"); e != 1 {
		t.Errorf("epoch %d: they fight for the name", e)
	}
	if !strings.HasPrefix(c.m.from, "127.0.0.1:") {
		t.Errorf("it asks from %q", c.m.from)
	}
	stop()
	eventually(t, "the second to have the name", func() bool { return second.seen() == 2 })
}

// lossy loses the master's first answers.
type lossy struct {
	*credential.Store
	left int
}

func (l *lossy) Accept(certificate []byte, authorities [][]byte) error {
	if l.left > 0 {
		l.left--
		return errors.New("the power went")
	}
	return l.Store.Accept(certificate, authorities)
}

// TestJoinInterrupted loses the answer to a join: the same token is good for the
// same machine.
func TestJoinInterrupted(t *testing.T) {
	t.Parallel()
	c := newSecure(t, time.Hour)
	c.serve()
	dir := t.TempDir()
	c.write(filepath.Join(dir, "token"), c.token("m1"))
	cfg := c.config(dir, newAgent("m1"), slog.New(slog.DiscardHandler))
	cfg.Identity = &lossy{c.open(dir), 2}
	background(t, agentlink.New(cfg).Run)
	eventually(t, "m1 to join", func() bool { return c.m.epoch("m1") == 1 })
}

// TestExpiredMachine comes back after its certificate's end.
func TestExpiredMachine(t *testing.T) {
	t.Parallel()
	c := newSecure(t, time.Hour)
	c.serve()
	dir := t.TempDir()
	c.write(filepath.Join(dir, "token"), c.token("m1"))
	_, stop := c.agent(dir, newAgent("m1"))
	eventually(t, "m1 to join", func() bool { return c.m.epoch("m1") == 1 })
	stop()
	late, err := credential.Open(credential.Config{Dir: dir, Now: func() time.Time { return time.Now().Add(31 * 24 * time.Hour) }})
	if err != nil {
		t.Fatal(err)
	}
	var cfg *tls.Config
	if cfg, err = late.Connect("127.0.0.1"); cfg != nil || err == nil || !strings.Contains(err.Error(), "the local time is") || !strings.Contains(err.Error(), "muster pki token m1") {
		t.Errorf("%v, %v", cfg, err)
	}
}
