package image

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/musterhq/muster/schema"
)

// Peers are the other machines of the cell. Methods may be called from any goroutine.
type Peers interface {
	// Sources asks the master where an image or a package is to be had. The machine of the
	// question is this one. It errs while no master answers.
	Sources(ctx context.Context, q schema.SourceQuestion) (schema.SourceAnswer, error)
	// Get asks a machine for a blob, from an offset on. It waits, if the machine says so, at
	// most some seconds for a blob that comes there, or until one of its uploads ends.
	Get(ctx context.Context, p schema.SourcePeer, b PeerBlob) (PeerAnswer, error)
}

// PeerBlob is a blob that a machine is asked for.
type PeerBlob struct {
	Sum    schema.Digest
	Offset int64
	Size   int64 // of the whole blob, -1 if it is not known: it is not asked for
	Wait   bool
}

// PeerAnswer is a machine's answer.
type PeerAnswer struct {
	Body io.ReadCloser // from the offset on; nil: it gives nothing now
	Size int64         // of the whole blob, with a Body
	// Later says, without a Body, that the blob is coming to the machine, or that the machine
	// has all the uploads that it makes at once. Moved is how many bytes it has so far, or has
	// sent in all: it grows while somebody is served.
	Later bool
	Moved int64
}

// How other machines are asked. A machine is slow that brings less than slowBytes in slowTime of
// waiting for it.
const (
	askSources  = 2 * time.Second  // the master, again
	keepEvery   = 5 * time.Second  // the same, while nothing is asked for
	stalledFor  = 30 * time.Second // nothing has come, and nothing comes to those who are to give it
	patience    = 15 * time.Minute // likewise, whatever they say of what comes to them
	longest     = time.Hour        // likewise, whatever the master says
	slowBytes   = 1 << 20
	slowTime    = 10 * time.Second // or Config.Stall, if that is less
	mostLiars   = 3
	firstPause  = 50 * time.Millisecond
	longestRest = time.Second
)

// search looks for the blobs of one image or archive at other machines. It may be used from
// any goroutine; nil finds nothing.
type search struct {
	peers   Peers
	content digest.Digest
	now     func() time.Time
	slow    time.Duration // as slowTime, at most
	traffic *atomic.Int64

	asking sync.Mutex // held while the master is asked

	mu      sync.Mutex // guards what follows
	answer  schema.SourceAnswer
	asked   time.Time       // when that came, or did not; zero: never
	led     time.Time       // when a master last answered
	stalls  bool            // the last question said that nothing comes
	changed bool            // there is something new to say to the master
	without map[string]bool // machines that do not give it
	gave    map[digest.Digest][]string
	liars   int
	alone   bool             // only the registry is asked from now on
	came    map[string]int64 // what machines said last of blobs that they cannot give yet
	moved   time.Time        // when something last came, here or there
	fed     time.Time        // when something last came here
}

// begin makes what it needs, and starts its times.
func (s *search) begin() *search {
	s.without, s.gave, s.came = map[string]bool{}, map[digest.Digest][]string{}, map[string]int64{}
	s.slow = min(s.slow, slowTime)
	s.moved = s.now()
	s.fed, s.led = s.moved, s.moved
	return s
}

// keep has the master know that the machine goes on, which it would forget while a long blob comes,
// until stop is called with what has come of it: after an error another machine may go to the
// registry.
func (s *search) keep(ctx context.Context) (stop func(err error)) {
	if s == nil {
		return func(error) {}
	}
	running, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for rest(running, keepEvery) == nil {
			if _, err := s.sources(running); err != nil {
				return
			}
		}
	}()
	return func(err error) {
		cancel()
		if <-done; err == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askSources)
		defer cancel()
		_, _ = s.peers.Sources(ctx, schema.SourceQuestion{Content: schema.Digest(s.content), Ended: true}) // else it finds out
	}
}

// open returns a blob of another machine, from an offset on; nil if the registry is to be
// asked. It has so many bytes in all, -1 if that is not known. It errs only with ctx.
func (s *search) open(ctx context.Context, sum digest.Digest, offset, size int64) (*peerBody, error) {
	if s == nil {
		return nil, nil
	}
	pause, best := firstPause, ""
	for {
		began := s.now()
		a, err := s.sources(ctx)
		if err != nil || s.isAlone() {
			return nil, err
		}
		later := ""
		for _, p := range a.Peers {
			if s.avoids(p.Machine) {
				continue
			}
			body, came, err := s.ask(ctx, p, PeerBlob{Sum: schema.Digest(sum), Offset: offset, Size: size, Wait: p.Machine == best})
			if body != nil || err != nil {
				return body, err
			}
			if came {
				later = p.Machine
			}
		}
		if a.Registry || s.overdue() { // whatever the master says
			return nil, nil
		}
		if best = later; best != "" && s.now().Sub(began) >= firstPause {
			continue // it waits there
		}
		if err := rest(ctx, pause); err != nil {
			return nil, err
		}
		pause = min(2*pause, longestRest)
	}
}

// rest waits.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ask asks one machine; later says that it may have the blob soon. It errs only with ctx.
func (s *search) ask(ctx context.Context, p schema.SourcePeer, b PeerBlob) (body *peerBody, later bool, err error) {
	a, err := s.peers.Get(ctx, p, b)
	if cause := context.Cause(ctx); cause != nil {
		if a.Body != nil {
			_ = a.Body.Close()
		}
		return nil, false, cause
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		s.avoid(p.Machine)
	case a.Body != nil && (b.Size >= 0 && a.Size != b.Size || a.Size < b.Offset):
		_ = a.Body.Close() // it is something else
		s.avoid(p.Machine)
	case a.Body != nil:
		sum := digest.Digest(b.Sum)
		s.gave[sum] = append(s.gave[sum], p.Machine)
		return &peerBody{search: s, machine: p.Machine, body: a.Body, size: a.Size, left: a.Size - b.Offset}, false, nil
	case a.Later:
		key := p.Machine + " " + string(b.Sum)
		if a.Moved > s.came[key] {
			s.came[key], s.moved = a.Moved, s.now()
		}
		return nil, true, nil
	case p.Holds: // it has only said so
		s.avoid(p.Machine)
	}
	return nil, false, nil
}

// small returns a small blob of another machine, whole and of its digest; nil if the registry is to
// be asked. It errs only with ctx.
func (s *search) small(ctx context.Context, sum digest.Digest, limit int64) ([]byte, error) {
	for {
		body, err := s.open(ctx, sum, 0, -1)
		if body == nil || err != nil {
			return nil, err
		}
		b, err := io.ReadAll(io.LimitReader(body, limit+1))
		_ = body.Close() // all is read
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err == nil && digest.FromBytes(b) == sum:
			return b, nil
		case err == nil:
			s.blame(sum)
		}
	}
}

// progress notes that so many bytes have come from the registry; s may be nil.
func (s *search) progress(n int) {
	if s == nil || n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved = s.now()
	s.fed = s.moved
}

// overdue reports whether the machine goes to the registry by itself: when no master has said for a
// while whose turn it is, or none has come to its turn for very long.
func (s *search) overdue() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	unled := now.Sub(s.led) > stalledFor
	return unled && (now.Sub(s.moved) > 2*stalledFor || now.Sub(s.fed) > patience+stalledFor) || now.Sub(s.fed) > longest
}

// trust notes that a blob is what its digest says; s may be nil.
func (s *search) trust(sum digest.Digest) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.gave, sum)
}

// avoid has a machine asked no more. s.mu is held.
func (s *search) avoid(machine string) {
	if !s.without[machine] {
		s.without[machine], s.changed = true, true
	}
}

func (s *search) avoids(machine string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.without[machine]
}

func (s *search) isAlone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alone
}

// sources returns what the master says, which it is asked again after a while. It errs only
// with ctx.
func (s *search) sources(ctx context.Context) (schema.SourceAnswer, error) {
	s.asking.Lock()
	defer s.asking.Unlock()
	s.mu.Lock()
	now := s.now()
	stalled := now.Sub(s.moved) > stalledFor || now.Sub(s.fed) > patience
	fresh := !s.asked.IsZero() && now.Sub(s.asked) < askSources && !s.changed && (!stalled || s.answer.Registry || s.stalls)
	if fresh || s.alone {
		defer s.mu.Unlock()
		return s.answer, nil
	}
	q := schema.SourceQuestion{Content: schema.Digest(s.content), Stalled: stalled}
	for machine := range s.without {
		if len(q.Without) < schema.MaxWithout {
			q.Without = append(q.Without, machine)
		}
	}
	s.changed, s.stalls = false, stalled
	s.mu.Unlock()
	a, err := s.peers.Sources(ctx, q)
	if cause := context.Cause(ctx); cause != nil {
		return schema.SourceAnswer{}, cause
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.answer, s.led = a, s.now()
	} else if s.asked.IsZero() { // nobody knows who has it; else those may go on who were named
		s.alone = true
	}
	s.asked = s.now()
	return s.answer, nil
}

// blame has those asked no more that gave some of a blob that is not what its digest says. It
// returns false if nobody did.
func (s *search) blame(sum digest.Digest) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	liars := s.gave[sum]
	delete(s.gave, sum)
	for _, machine := range liars {
		s.avoid(machine)
	}
	if s.liars += len(liars); s.liars >= mostLiars {
		s.alone = true
	}
	return len(liars) > 0
}

// suspect reports whether an error can be that of a machine that sent something else: what is
// wrong with a blob is known before its digest.
func suspect(err error) bool { return errors.Is(err, ErrDigest) || errors.Is(err, ErrInvalid) }

// errSlow is that of a machine that is slow.
var errSlow = errors.New("the machine that gives it is too slow")

// peerBody is a blob that another machine sends.
type peerBody struct {
	search  *search
	machine string
	body    io.ReadCloser
	size    int64 // of the whole blob
	left    int64 // to be read

	waited time.Duration // of what follows
	got    int64
}

// Read implements io.Reader.
func (b *peerBody) Read(p []byte) (int, error) {
	began := b.search.now()
	// One that sends nothing at all is not waited for.
	timer := time.AfterFunc(b.search.slow, func() { _ = b.body.Close() })
	n, err := b.body.Read(p)
	if !timer.Stop() && err != nil {
		err = errSlow
	}
	now := b.search.now()
	b.search.traffic.Add(int64(n))
	b.got += int64(n)
	if b.left -= int64(n); b.left > 0 && errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if b.waited += now.Sub(began); b.got >= slowBytes {
		b.waited, b.got = 0, 0
	} else if b.waited > b.search.slow && err == nil {
		err = errSlow
	}
	b.search.mu.Lock()
	defer b.search.mu.Unlock()
	if n > 0 {
		b.search.moved, b.search.fed = now, now
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.search.avoid(b.machine)
	}
	return n, err
}

// Close implements io.Closer.
func (b *peerBody) Close() error { return b.body.Close() }
