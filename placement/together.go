package placement

import (
	"encoding/binary"
	"slices"

	"github.com/musterhq/muster/schema"
)

// gathering is asks that get places together, or none.
type gathering struct {
	*pass
	who crowd
	// holder names them where machines are held for them, see holderOf.
	holder string
	must   []GangJob
	gang   string // its name, "" for the tasks of one job
	asks   []Ask  // as each asks for itself
	asked  map[schema.TaskName]*Ask
	kinds  []kind
	// kindOf says of which kind an ask is.
	kindOf map[schema.TaskName]int
	key    string // of all that makes a difference to the search for places
}

// kind is asks of a job that are alike.
type kind struct {
	asks []int // of the gathering
	// What follows is known once places are searched for, see gathering.measure.
	c        *class   // what they want of a machine, whoever else is there
	kin      *kin     // what relations say besides
	profile  int32    // of the relations
	fits     []uint16 // how many of them have room on each machine, at most
	total    int      // on all machines
	machines int      // how many take one at least
	devices  int      // how many devices of these will do for what one needs; math.MaxInt if it needs none
	rank     int      // it has to be near what has a lower one
	size     float32
	bit      uint64 // of the kind, see alikeRoom
}

// Place decides the asks and charges the snapshot with what it placed. They
// are decided by priority, high to low; within one, those that have waited
// longer than Options.ReserveAfter come first, the longest first; then the
// users take turns, in a user's turn the jobs do, and a job's asks go by index. Of
// hundreds for which there is no ample room the largest have the first turns, unless
// an eighth of them or more want devices and all find room without that.
// A turn is one ask, or a whole job where there is ample room for all.
// The decisions are in that order; those of victims, which ask again at once,
// are among them.
func Place(s *Snapshot, asks []Ask, seed uint64) []Decision {
	p := newPass(s, seed)
	p.search, p.together = searchPass, p.decideTogether
	return p.place(asks)
}

// gather takes the asks that are decided with one; nil if they have been.
func (p *pass) gather(a *Ask) *gathering {
	s := p.snapshot
	g := &gathering{pass: p, who: crowdOf(a), holder: holderOf(a), must: a.musts()}
	g.asks = p.gangs[g.who]
	if len(g.asks) == 0 {
		return nil
	}
	if a.Gang != nil {
		g.gang = a.Gang.Name
	}
	delete(p.gangs, g.who)
	g.asked = make(map[schema.TaskName]*Ask, len(g.asks))
	g.kindOf = make(map[schema.TaskName]int, len(g.asks))
	var key []byte
	for i := range g.asks {
		a := &g.asks[i]
		job := s.jobID(a.Name.JobName)
		a.Together, a.Gang, a.Returns = 0, nil, false
		g.asked[a.Name] = a
		delete(p.returning, job)
		if i == 0 || a.Name.JobName != g.asks[i-1].Name.JobName || a.On != g.asks[i-1].On || !alike(a, &g.asks[i-1]) {
			g.kinds = append(g.kinds, kind{})
			key = s.kindred.appendTies(s.appendKey(key, a), s.profileOf(job, a.Relations))
			key = append(appendStrings(key, a.Name.Job, a.On), boolByte(s.isProtected(job)))
		}
		k := &g.kinds[len(g.kinds)-1]
		k.asks = append(k.asks, i)
		g.kindOf[a.Name] = len(g.kinds) - 1
		key = binary.AppendVarint(binary.AppendVarint(key, int64(a.Name.Index)), int64(a.Generation))
	}
	for _, m := range g.must {
		key = binary.AppendVarint(key, int64(m.Tasks))
	}
	g.key = string(key)
	return g
}

// returningBefore returns an ask of those of its gang that are decided before one, since they had
// places; nil if there are none any more.
func (p *pass) returningBefore(a *Ask) *Ask {
	who := crowdOf(a)
	who.returns = true
	if list := p.gangs[who]; !a.Returns && len(list) > 0 {
		first := list[0]
		return &first
	}
	return nil
}

// decideTogether decides all asks of a job or of a gang, at the turn of the first: all get
// places, or none. What becomes of them is seen on forks first. Those that had places come before those that
// had none.
func (p *pass) decideTogether(e entry) {
	if first := p.returningBefore(e.ask); first != nil {
		p.decideTogether(entry{ask: first, job: e.job})
	}
	s, g := p.snapshot, p.gather(e.ask)
	if g == nil {
		return
	}
	known := s.stuck[g.who]
	if known != nil && g.stands(known) {
		g.refuse(known.whys)
		return
	}
	decisions := g.first()
	roll := rollOf(s, g.must, g.asks)
	if g.count(roll, decisions) == 0 && len(roll.lacks()) == 0 {
		p.takeOver(decisions, g.asked)
		return
	}
	outcome := outcomeOf(known, g.key)
	if g.couldBeWhole(roll, decisions) && (known == nil || g.mayHelp(known)) {
		found := outcome.search(g)
		if found != nil {
			delete(s.stuck, g.who)
			p.takeOver(found, g.asked)
			return
		}
	}
	whys := g.explain(roll, decisions)
	others := slices.Clone(s.holds)
	g.refuse(whys)
	g.remember(known, whys, others, outcome)
	s.putOff = s.putOff || outcome.open
}

// outcome is what became of the searches for places for a gang.
type outcome struct {
	open            bool // there is to be another one, even if nothing changes
	searches, again int  // see stuck
}

// mostPaused bounds for how many passes there is no search after one in vain.
const mostPaused = 32

// outcomeOf returns that of what is remembered of asks with a key.
func outcomeOf(known *stuck, key string) outcome {
	if known == nil || known.key != key {
		return outcome{}
	}
	return outcome{searches: known.searches, again: known.again}
}

// search searches for places, and notes what came of it. A search that came to its end is not made again in each of the
// passes that follow, whatever changes: there is not enough for all gangs in a pass, and those that come first would
// have it all.
func (o *outcome) search(g *gathering) []Decision {
	pass := g.snapshot.passes
	if o.open = pass < o.again; o.open {
		return nil
	}
	found, searched := g.search()
	if o.open = !searched; searched {
		o.again = pass + min(1<<min(o.searches, 16), mostPaused)
		o.searches++
	}
	return found
}

// first sees what becomes of the asks when they are decided as others are. None of them holds a
// machine: that would be in the way of the others.
func (g *gathering) first() []Decision {
	fork := g.snapshot.Fork()
	fork.options.ReserveAfter = -1
	decisions := Place(fork, g.asks, g.seed)
	fork.Release()
	g.snapshot.merge()
	return decisions
}

// count adds to a roll the asks that have got a place, and returns how many have not.
func (g *gathering) count(r *roll, decisions []Decision) (missing int) {
	for i := range decisions {
		switch d := &decisions[i]; {
		case d.Evicted || g.asked[d.Name] == nil:
		case d.Machine != "":
			r.add(d.Name.JobName, 1)
		default:
			missing++
		}
	}
	return missing
}

// couldBeWhole reports whether all have a place that have to, if those that ask get one.
func (g *gathering) couldBeWhole(r *roll, decisions []Decision) bool {
	all := roll{r.must, slices.Clone(r.has)}
	for i := range decisions {
		if d := &decisions[i]; !d.Evicted && d.Machine == "" {
			all.add(d.Name.JobName, 1)
		}
	}
	return len(all.lacks()) == 0
}

// refuse decides that none of the asks gets a place, and holds machines for them.
func (g *gathering) refuse(whys []Why) {
	s, from := g.snapshot, len(g.out)
	for i := range g.asks {
		name := g.asks[i].Name
		s.release(s.jobID(name.JobName), name.Index)
		g.out = append(g.out, Decision{Name: name, Why: whys[i]})
	}
	g.hold(g.out[from:])
}

// explain says of each ask why it waits, when these decisions were made of all of them: of those
// that have got no place for themselves, of the others the reason of one that has none, by name.
func (g *gathering) explain(roll *roll, decisions []Decision) []Why {
	s := g.snapshot
	whole := Why{Machines: s.slots.Len()}
	whole.Places, whole.Together = roll.places()
	whole.TooMany = g.tooMany()
	if g.gang != "" {
		whole.Gang, whole.Lacks = g.gang, roll.lacks()
	}
	own, alone := map[schema.TaskName]Why{}, map[*kind]Why{}
	others := whole
	for i := range decisions {
		d := &decisions[i]
		if d.Evicted || g.asked[d.Name] == nil || d.Machine != "" {
			continue
		}
		w := g.reasonOf(d, alone)
		w.Places, w.Together, w.Gang, w.Lacks, w.TooMany = whole.Places, whole.Together, whole.Gang, whole.Lacks, whole.TooMany
		own[d.Name] = w
		if others.Of == "" || others.Alone && !w.Alone { // what has no room at all is the better reason
			others = w
			others.Of = d.Name.Short()
		}
	}
	whys := make([]Why, 0, len(g.asks))
	for i := range g.asks {
		w, ok := own[g.asks[i].Name]
		if !ok {
			w = others
		}
		whys = append(whys, w)
	}
	return whys
}

// reasonOf returns why an ask has got no place: if it has none without the others either, the
// reason of that. alone is what machines say to each kind without the others, as far as it is known.
func (g *gathering) reasonOf(d *Decision, alone map[*kind]Why) Why {
	a := g.asked[d.Name]
	k := &g.kinds[g.kindOf[a.Name]]
	w, known := alone[k]
	if !known {
		w = g.snapshot.Explain(*a)
		alone[k] = w
	}
	if w.Feasible == 0 && a.Relations == nil {
		return w
	}
	fits := w.Feasible > 0
	w = d.Why
	w.Held, w.Alone = "", fits
	return w
}

// rollOf counts those that have a place whatever is decided about some asks. What is stopping
// has none: it leaves for good, or wants another one.
func rollOf(s *Snapshot, must []GangJob, asks []Ask) *roll {
	r := &roll{must: must, has: make([]int, len(must))}
	for i := range must {
		if id, ok := s.jobIDs.Get(must[i].Job); ok {
			r.has[i] = s.stay(id)
		}
	}
	for i := range asks {
		if _, claims := s.claims.Get(together(s.jobID(asks[i].Name.JobName), int32(asks[i].Name.Index))); claims {
			r.add(asks[i].Name.JobName, -1)
		}
	}
	return r
}

// mostStuck bounds of how many gangs something is remembered, and mostFits of how many kinds of tasks on how many
// machines for each, 2 B each: what has more is searched for whenever anything changes.
const (
	mostStuck = 256
	mostFits  = 1 << 18
)

// remember remembers that there are no places for asks; known is what was remembered of them
// before, nil for nothing, and others the machines that are held for others.
func (g *gathering) remember(known *stuck, whys []Why, others []hold, o outcome) {
	s := g.snapshot
	if s.forked {
		return
	}
	k := &stuck{
		key: g.key, shapes: s.shapes, preempts: s.options.Preempt, changes: s.happened(), position: s.now(), flips: s.kindred.flipNow(), holds: others, whys: whys, open: o.open,
		searches: o.searches, again: o.again, protected: s.protectedVersion, budgets: map[int32]int{},
	}
	for job := range s.budgets {
		k.budgets[job] = s.budget(job)
	}
	if g.kinds[0].fits != nil && len(g.kinds)*s.slots.Len() <= mostFits {
		for i := range g.kinds {
			k.fits = append(k.fits, g.kinds[i].fits)
		}
	} else if known != nil && known.key == g.key {
		k.fits = known.fits
	}
	if len(s.stuck) >= mostStuck {
		clear(s.stuck)
	}
	if s.stuck == nil {
		s.stuck = map[crowd]*stuck{}
	}
	s.stuck[g.who] = k
}

// isOf reports whether what is remembered is of the same asks, of as many machines for them, which may be asked as
// much as then.
func (g *gathering) isOf(k *stuck) bool {
	s := g.snapshot
	return !k.open && k.key == g.key && k.shapes == s.shapes && k.preempts == s.options.Preempt && k.protected == s.protectedVersion && g.spares(k)
}

// stands reports whether nothing has changed for the asks.
func (g *gathering) stands(k *stuck) bool {
	s := g.snapshot
	return g.isOf(k) && k.changes == s.happened() &&
		slices.EqualFunc(k.holds, s.holds, func(a, b hold) bool {
			return a.slot == b.slot && a.c.key == b.c.key && a.c.priority == b.c.priority && a.room.Equal(b.room) && a.strict == b.strict && a.spare == b.spare
		})
}

// spares reports whether as many tasks of others may be evicted as before.
func (g *gathering) spares(k *stuck) bool {
	s := g.snapshot
	for job, n := range k.budgets {
		if s.budget(job) != n {
			return false
		}
	}
	return true
}

// mayHelp reports whether anything has changed with which there may be places: more room for any of
// the asks on a machine, or other relations. It brings up to date what is remembered.
func (g *gathering) mayHelp(k *stuck) bool {
	s := g.snapshot
	if !g.isOf(k) || k.position < s.trimmed || len(k.fits) != len(g.kinds) {
		return true
	}
	g.describe()
	for i := range g.kinds {
		kind, fits := &g.kinds[i], k.fits[i]
		if kind.kin != nil && k.flips != s.kindred.flipNow() || len(fits) != int(s.nodes.Len()) {
			return true
		}
		for _, slot := range s.log[k.position-s.trimmed:] {
			n := s.roomFor(kind.c, slot)
			if n > fits[slot] || n > 0 && kind.c.needs != nil { // other devices may be free now
				return true
			}
			fits[slot] = n
		}
	}
	return false
}
