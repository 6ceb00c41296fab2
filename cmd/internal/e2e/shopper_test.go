package e2e_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"
)

// tally counts the requests of one client, each of which that failed it notes with its moment.
type tally struct {
	machine string

	mu     sync.Mutex // guards what follows
	asked  int
	since  int            // the last count
	by     map[string]int // who answered
	failed []string       // refused, reset, cut off or answered in another way
	late   int            // not answered in time, of which a slow machine may be the cause
}

// add counts a request that has begun at a time.
func (c *tally) add(what, who string, began time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	c.since++
	if c.by == nil {
		c.by = map[string]int{}
	}
	c.by[who]++
	if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
		c.late++
	} else if err != nil {
		c.failed = append(c.failed, fmt.Sprintf("%s: %s from %s: after %s: %v", time.Now().Format("15:04:05.000"), what, c.machine, time.Since(began).Round(time.Millisecond), err))
	}
}

// seen errs while there were hardly requests since the last count.
func (c *tally) seen() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since < 20 {
		return fmt.Errorf("only %d requests from %s", c.since, c.machine)
	}
	return nil
}

// counted is what came of requests.
type counted struct {
	asked, late int
	by          map[string]int
	failed      []string
}

// count returns what came of the requests since the last count.
func (c *tally) count() counted {
	c.mu.Lock()
	defer c.mu.Unlock()
	is := counted{c.since, c.late, c.by, c.failed}
	c.since, c.late, c.by, c.failed = 0, 0, nil, nil
	return is
}

// all returns how many requests there were.
func (c *tally) all() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

// shopper sends requests to a service from a machine, each over a connection of its own to what DNS answers at that moment.
type shopper struct {
	tally
	service string // its name in DNS
	port    uint16
	others  []string // machines that are asked for the name after its own
}

// every is the time between the requests of a client, if the machine keeps up. At 2 ms they
// and the servers use up to half of a machine of two cores: `make services` has that.
var every = flag.Duration("services.every", 10*time.Millisecond, "time between two requests of a client, if the machine keeps up")

// ticks is when each so much time has passed again, until ctx ends.
func ticks(ctx context.Context, every time.Duration) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case at := <-tick.C:
				if !yield(at) {
					return
				}
			}
		}
	}
}

// shop sends requests until ctx ends.
func (g *grid) shop(ctx context.Context, c *shopper) {
	for range ticks(ctx, *every) {
		began := time.Now()
		at, err := g.lookup(ctx, c.service, append([]string{c.machine}, c.others...)...)
		who := ""
		if err == nil {
			who, err = request(ctx, netip.AddrPortFrom(at, c.port))
		}
		if ctx.Err() != nil {
			return
		}
		c.add(c.service, who, began, err)
	}
}

// holder sends requests over one connection, which nothing may end.
type holder struct {
	tally
	what string
	to   netip.AddrPort
	conn net.Conn
	in   *bufio.Reader
}

// hold opens a connection from a machine to an address.
func (g *grid) hold(machine, what string, to netip.AddrPort) *holder {
	g.t.Helper()
	h := &holder{what: what, to: to}
	h.machine = machine
	g.must(within(bound, func() error {
		var err error
		if failed := g.inside(machine, func() {
			d := net.Dialer{Timeout: requestWithin}
			h.conn, err = d.DialContext(g.t.Context(), "tcp", to.String())
		}); failed != nil {
			return failed
		}
		return err
	}))
	h.in = bufio.NewReader(h.conn)
	return h
}

// keep sends requests until ctx ends, or its connection has.
func (h *holder) keep(ctx context.Context) {
	defer h.conn.Close()
	for range ticks(ctx, 10**every) {
		began := time.Now()
		who, err := h.ask()
		if h.add("the open connection to "+h.what, who, began, err); err != nil {
			return
		}
	}
}

func (h *holder) ask() (who string, err error) {
	if err := h.conn.SetDeadline(time.Now().Add(2 * requestWithin)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(h.conn, "GET / HTTP/1.1\r\nHost: held\r\n\r\n"); err != nil {
		return "", err
	}
	r, err := http.ReadResponse(h.in, nil)
	if err != nil {
		return "", fmt.Errorf("read: %w", err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return string(b), err
}

// sending is clients at work.
type sending struct {
	*grid
	clients []*tally
	ctx     context.Context //nolint:containedctx // of the clients
	cancel  context.CancelFunc
	running sync.WaitGroup
}

// sendAll begins to send requests.
func (g *grid) sendAll() *sending {
	s := &sending{grid: g}
	s.ctx, s.cancel = context.WithCancel(g.t.Context())
	return s
}

// shop adds a client, as soon as its machine sends requests to the service on.
func (s *sending) shop(machine, service string, port uint16) *shopper {
	s.t.Helper()
	c := &shopper{service: service, port: port}
	c.machine = machine
	for other := range s.hosts {
		if other != machine {
			c.others = append(c.others, other)
		}
	}
	slices.Sort(c.others)
	s.from(machine, service+" answers", c.service, port, func(_ string, err error) bool { return err == nil })
	s.clients = append(s.clients, &c.tally)
	s.running.Go(func() { s.check(s.inside(machine, func() { s.grid.shop(s.ctx, c) })) })
	return c
}

// hold adds a client with one connection.
func (s *sending) hold(machine, what string, to netip.AddrPort) {
	s.t.Helper()
	h := s.grid.hold(machine, what, to)
	s.clients = append(s.clients, &h.tally)
	s.running.Go(func() { h.keep(s.ctx) })
}

// stop returns when the last client has ended. It may be called again.
func (s *sending) stop() {
	s.cancel()
	s.running.Wait()
}

// all returns how many requests there were.
func (s *sending) all() (n int) {
	for _, c := range s.clients {
		n += c.all()
	}
	return n
}

// account does something, and fails the test for each request that failed meanwhile, or if there were hardly any.
func (s *sending) account(what string, do func()) {
	s.t.Helper()
	for _, c := range s.clients {
		c.count()
	}
	began := time.Now()
	do()
	took, asked, late := time.Since(began).Round(time.Millisecond), 0, 0
	var failed []string
	for _, c := range s.clients {
		s.must(within(bound, c.seen))
		is := c.count()
		asked, late, failed = asked+is.asked, late+is.late, append(failed, is.failed...)
		if testing.Verbose() {
			s.t.Logf("%s: %s was answered by %v", what, c.machine, is.by)
		}
	}
	s.t.Logf("%s, %s: %d of %d requests failed, %d were not answered in time", what, took, len(failed), asked, late)
	if slices.Sort(failed); len(failed) > 0 {
		by := map[string]int{}
		for _, f := range failed {
			by[f[:len(time.TimeOnly)]]++
		}
		s.t.Errorf("%s: %d requests failed, by second %v, the first of them:\n%s", what, len(failed), by, lines(failed, 20))
	}
}

func lines(list []string, most int) (out string) {
	for _, line := range list[:min(len(list), most)] {
		out += line + "\n"
	}
	return out
}
