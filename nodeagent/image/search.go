package image

import (
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
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
	lastWord    = time.Second      // for a master to receive that all has come
	slowBytes   = 1 << 20
	slowTime    = 10 * time.Second // or Config.Stall, if that is less
	mostLiars   = 3
	firstFault  = 5 * time.Second // how long a machine is not asked that was slow or out of reach
	moreFaults  = 4               // times as long after each further time
	longestOut  = 5 * time.Minute
	firstPause  = 50 * time.Millisecond
	longestRest = time.Second
)

// search looks for the blobs of one image or archive at other machines. It may be used from
// any goroutine; nil finds nothing.
type search struct {
	peers   Peers
	content digest.Digest
	pull    uint64 // random
	now     func() time.Time
	slow    time.Duration // as slowTime, at most
	traffic *atomic.Int64

	asking sync.Mutex // held while the master is asked

	mu       sync.Mutex // guards what follows
	answer   schema.SourceAnswer
	asked    time.Time // when that came, or did not; zero: never
	led      time.Time // when a master last answered
	stalls   bool      // the last question said that nothing comes
	changed  bool      // there is something new to say to the master
	turn     uint64    // of the last question
	fetches  map[digest.Digest]*fetch
	have     []digest.Digest   // which no master has answered yet
	without  map[string]*fault // machines that do not give it
	gave     map[digest.Digest][]string
	liars    int
	received int64            // bytes, from machines
	alone    bool             // only the registry is asked from now on
	came     map[string]int64 // what machines said last of blobs that they cannot give yet
	moved    time.Time        // when something last came, here or there
	fed      time.Time        // when something last came here
}

// fetch is a blob that no other machine has given so far.
type fetch struct {
	begun bool // the registry is asked
	bytes int64
}

// fault is what is wrong with a machine.
type fault struct {
	times int
	until time.Time // it is not asked
	liar  bool      // never again
}

// begin makes what it needs, and starts its times.
func (s *search) begin() *search {
	s.without, s.gave, s.came = map[string]*fault{}, map[digest.Digest][]string{}, map[string]int64{}
	s.fetches, s.pull = map[digest.Digest]*fetch{}, rand.Uint64()|1
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
		<-done
		patience := lastWord
		if err != nil {
			patience = askSources
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		s.mu.Lock()
		q := s.question()
		s.mu.Unlock()
		q.Ended, q.Whole, q.Fetches = err != nil, err == nil, nil
		_, _ = s.peers.Sources(ctx, q) // else it finds out
	}
}

// want notes that a blob has to come: the master is to say whether from the registry.
func (s *search) want(sum digest.Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fetches[sum] == nil {
		s.fetches[sum], s.changed = &fetch{}, true
		s.answer.Fetch = slices.DeleteFunc(slices.Clone(s.answer.Fetch), func(d schema.Digest) bool { return d == schema.Digest(sum) })
	}
}

// begins reports whether a blob that is wanted may be fetched from the registry, and notes that it is.
func (s *search) begins(sum digest.Digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.fetches[sum]
	may := s.answer.Registry
	if s.answer.ByBlob {
		may = f.begun || slices.Contains(s.answer.Fetch, schema.Digest(sum))
	}
	f.begun = may || s.overdue() // whatever the master says
	return f.begun
}

// end notes that a blob is not wanted any more; here says that it is here, and that others can have it. s may be nil.
func (s *search) end(sum digest.Digest, here bool) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.fetches, sum)
	if here && len(s.have) < schema.MaxFetches && !slices.Contains(s.have, sum) {
		s.have = append(s.have, sum)
	}
}

// open returns a blob of another machine, from an offset on; nil if the registry is to be
// asked. It has so many bytes in all, -1 if that is not known. It errs only with ctx.
func (s *search) open(ctx context.Context, sum digest.Digest, offset, size int64) (*peerBody, error) {
	if s == nil {
		return nil, nil
	}
	s.want(sum)
	body, err := s.find(ctx, PeerBlob{Sum: schema.Digest(sum), Offset: offset, Size: size})
	if body != nil || err != nil {
		s.end(sum, false)
	}
	return body, err
}

// find is open for a blob that is wanted.
func (s *search) find(ctx context.Context, b PeerBlob) (*peerBody, error) {
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
			b.Wait = p.Machine == best
			body, came, err := s.ask(ctx, p, b)
			if body != nil || err != nil {
				return body, err
			}
			if came {
				later = p.Machine
			}
		}
		if s.begins(digest.Digest(b.Sum)) {
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
		s.avoid(p.Machine, false)
	case a.Body != nil && (b.Size >= 0 && a.Size != b.Size || a.Size < b.Offset):
		_ = a.Body.Close() // it is something else
		s.avoid(p.Machine, true)
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
		s.avoid(p.Machine, true)
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

// progress notes that so many bytes of a blob have come from the registry; s may be nil.
func (s *search) progress(sum digest.Digest, n int) {
	if s == nil || n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.moved = s.now()
	s.fed = s.moved
	if f := s.fetches[sum]; f != nil {
		f.bytes += int64(n)
	}
}

// overdue reports whether the machine goes to the registry by itself: when no master has said for a
// while whose turn it is, or none has come to its turn for very long. s.mu is held.
func (s *search) overdue() bool {
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

// avoid has a machine asked no more that lies, and another one not for a while: it may be busy. s.mu is held.
func (s *search) avoid(machine string, liar bool) {
	f := s.without[machine]
	if f == nil {
		f = &fault{}
		s.without[machine] = f
	}
	out := firstFault
	for range f.times {
		out = min(moreFaults*out, longestOut)
	}
	f.times++
	f.liar, f.until = f.liar || liar, s.now().Add(out)
	s.changed = s.changed || s.refused(f)
}

// refused reports whether a machine is not to be counted on: once is no reason. s.mu is held.
func (s *search) refused(f *fault) bool { return f.liar || f.times > 1 && s.now().Before(f.until) }

func (s *search) avoids(machine string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.without[machine]
	return f != nil && (f.liar || s.now().Before(f.until))
}

// question returns the next question to the master. s.mu is held.
func (s *search) question() schema.SourceQuestion {
	s.turn++
	q := schema.SourceQuestion{Content: schema.Digest(s.content), Pull: s.pull, Turn: s.turn, Received: s.received}
	for machine, f := range s.without {
		if len(q.Without) < schema.MaxWithout && s.refused(f) {
			q.Without = append(q.Without, machine)
		}
	}
	for _, sum := range slices.Sorted(maps.Keys(s.fetches)) {
		if f := s.fetches[sum]; len(q.Fetches) < schema.MaxFetches {
			q.Fetches = append(q.Fetches, schema.SourceFetch{Blob: schema.Digest(sum), Begun: f.begun, Bytes: f.bytes})
		}
	}
	for _, sum := range s.have {
		q.Have = append(q.Have, schema.Digest(sum))
	}
	return q
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
	q := s.question()
	q.Stalled = stalled
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
		s.have = s.have[len(q.Have):]
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
		s.avoid(machine, true)
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
		b.search.received += int64(n)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.search.avoid(b.machine, false)
	}
	return n, err
}

// Close implements io.Closer.
func (b *peerBody) Close() error { return b.body.Close() }
