package sources

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/musterhq/muster/schema"
)

// site is a cell whose machines bring a content of some blobs, each like an agent.
type site struct {
	*machines
	t    *testing.T
	r    *rand.Rand
	now  time.Time
	desk *Desk
	all  []*puller
	late []schema.SourceQuestion // that come when others that are newer were here

	begun map[schema.Digest]int // fetches of a blob from the registry
	vain  map[schema.Digest]int // those of them that others have nothing of
}

// puller is a machine.
type puller struct {
	*site
	name      string
	blobs     []schema.Digest
	dead      bool // it is off
	hung      bool // it is up, and does nothing
	here      map[schema.Digest]bool
	fetched   map[schema.Digest]bool // of those, or of what is coming: from the registry
	id, turn  uint64
	fetches   map[schema.Digest]*schema.SourceFetch
	have      []schema.Digest // not said yet
	faults    map[string]int
	received  int64
	fed       time.Time
	pausedFor int
}

func newSite(t *testing.T, seed uint64) *site {
	s := &site{t: t, r: rand.New(rand.NewPCG(seed, 1)), now: noon, desk: &Desk{}, begun: map[schema.Digest]int{}, vain: map[schema.Digest]int{}}
	n := 3 + s.r.IntN(8)
	s.machines = of(n)
	var blobs []schema.Digest
	for i := range 1 + s.r.IntN(4) {
		blobs = append(blobs, schema.Digest(fmt.Sprint("sha256:", i)))
	}
	for i := range n {
		p := &puller{site: s, name: fmt.Sprint("m", i), blobs: blobs, here: map[schema.Digest]bool{}, fetched: map[schema.Digest]bool{}, faults: map[string]int{}}
		p.pull()
		s.all = append(s.all, p)
	}
	return s
}

// pull begins anew.
func (p *puller) pull() {
	p.id, p.turn, p.fetches, p.received, p.fed, p.have = p.r.Uint64()|1, 0, map[schema.Digest]*schema.SourceFetch{}, 0, p.now, nil
	for _, sum := range p.blobs {
		if p.here[sum] {
			p.have = append(p.have, sum)
		}
	}
}

// get has a blob here.
func (p *puller) get(sum schema.Digest) {
	delete(p.fetches, sum)
	p.here[sum], p.fed = true, p.now
	p.have = append(p.have, sum)
}

func (p *puller) whole() bool { return len(p.here) == len(p.blobs) }

// says returns a question.
func (p *puller) says() *schema.SourceQuestion {
	p.turn++
	q := asks(p.name)
	q.Pull, q.Turn, q.Have, q.Received, q.Stalled = p.id, p.turn, slices.Clone(p.have), p.received, p.now.Sub(p.fed) > 30*time.Second
	for other, n := range p.faults {
		if n > 1 {
			q.Without = append(q.Without, other)
		}
	}
	for _, sum := range p.blobs {
		if f := p.fetches[sum]; f != nil {
			q.Fetches = append(q.Fetches, *f)
		}
	}
	return q
}

// send sends a question; false: nothing came back. One in ten is lost, one in ten answers is, and one in ten questions
// comes another time.
func (p *puller) send(q *schema.SourceQuestion) (schema.SourceAnswer, bool) {
	switch p.r.IntN(10) {
	case 0:
		return schema.SourceAnswer{}, false
	case 1:
		p.desk.Answer(q, p.machines, p.now)
		return schema.SourceAnswer{}, false
	case 2:
		p.late = append(p.late, *q)
	}
	return p.desk.Answer(q, p.machines, p.now), true
}

// step is a second of a machine.
func (p *puller) step(trouble bool) {
	if p.dead || p.hung || p.whole() {
		return
	}
	if p.pausedFor--; p.pausedFor > 0 {
		return
	}
	if trouble && p.r.IntN(200) == 0 {
		p.lose()
		return
	}
	if p.fetch(trouble) {
		return
	}
	for _, sum := range p.blobs {
		if len(p.fetches) < 2 && !p.here[sum] && p.fetches[sum] == nil {
			p.fetches[sum] = &schema.SourceFetch{Blob: sum}
		}
	}
	if p.whole() {
		q := p.says()
		q.Whole = true
		p.send(q)
		return
	}
	if p.r.IntN(2) == 0 {
		return
	}
	a, ok := p.send(p.says())
	if !ok {
		return
	}
	p.have = nil
	p.others(a)
	for _, sum := range a.Fetch {
		if f := p.fetches[sum]; f != nil && !f.Begun {
			f.Begun, p.fetched[sum] = true, true
			p.begun[sum]++
		}
	}
}

// fetch goes on with what is fetched from the registry; true: that has failed, and the pull with it.
func (p *puller) fetch(trouble bool) bool {
	for _, sum := range p.blobs {
		f := p.fetches[sum]
		if f == nil || !f.Begun {
			continue
		}
		if f.Bytes += 1 + p.r.Int64N(9); f.Bytes > 50 {
			p.get(sum)
			continue
		}
		p.fed = p.now
		if !trouble || p.r.IntN(50) > 0 {
			continue
		}
		for sum, f := range p.fetches {
			if f.Begun {
				p.vain[sum]++
			}
		}
		p.fetches = nil
		q := p.says()
		q.Ended = true
		p.send(q)
		p.pausedFor = p.r.IntN(20)
		p.pull()
		return true
	}
	return false
}

// others asks the machines of an answer.
func (p *puller) others(a schema.SourceAnswer) {
	for _, sum := range p.blobs {
		if f := p.fetches[sum]; f == nil || f.Begun {
			continue
		}
		for _, peer := range a.Peers {
			other := p.all[slices.IndexFunc(p.all, func(o *puller) bool { return o.name == peer.Machine })]
			switch {
			case other.dead || other.hung:
				p.faults[other.name]++
			case other.here[sum] && p.r.IntN(3) > 0: // else it has no upload to spare
				p.get(sum)
				p.received += 2 << 20
			default:
				continue
			}
			break
		}
	}
}

// lose has a machine do nothing more.
func (p *puller) lose() {
	if p.dead = p.r.IntN(2) == 0; p.dead {
		delete(p.address, p.name)
	}
	p.hung = !p.dead
	for sum := range p.fetched {
		p.vain[sum]++
	}
}

// check errs when a blob is fetched too often.
func (s *site) check() error {
	for _, sum := range s.all[0].blobs {
		n := 0
		for _, p := range s.all {
			if f := p.fetches[sum]; f != nil && f.Begun && !p.dead && !p.hung {
				n++
			}
		}
		if n > Most {
			return fmt.Errorf("%d machines fetch %s at once", n, sum)
		}
		if most := Most + s.vain[sum]; s.begun[sum] > most {
			return fmt.Errorf("%s was fetched %d times, of which others had nothing of %d", sum, s.begun[sum], s.vain[sum])
		}
	}
	return nil
}

// Whatever is lost of questions, answers and machines, and however often a fetch fails: no blob is fetched from the
// registry by more than two at once, nor by more in all than two and those from which nobody has got it, and every machine that is
// left has all in the end.
func TestPulls(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		s := newSite(t, seed)
		trouble := seed%4 > 0
		left := func(p *puller) bool { return !p.dead && !p.hung && !p.whole() }
		for step := 0; slices.ContainsFunc(s.all, left); step++ {
			s.now = s.now.Add(time.Second)
			for _, i := range s.r.Perm(len(s.all)) {
				s.all[i].step(trouble && step < 600)
				if err := s.check(); err != nil {
					t.Fatalf("seed %d, after %d s: %v", seed, step, err)
				}
			}
			if len(s.late) > 0 && s.r.IntN(5) == 0 {
				q := s.late[0]
				s.late = s.late[1:]
				s.desk.Answer(&q, s.machines, s.now)
			}
			if step > 3000 {
				t.Fatalf("seed %d: after %d s a machine waits", seed, step)
			}
		}
	}
}
