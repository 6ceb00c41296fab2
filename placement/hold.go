package placement

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/musterhq/muster/placement/backfill"
	"github.com/musterhq/muster/schema"
)

const (
	// A machine in holdShare may be held for those that have waited long, and one
	// in any cell.
	holdShare = 100
	// When there is room for an ask is found out of the machines that lack the least: of so
	// many for one for which none is held, and then of so many besides its own.
	holdSearch, holdLooks = 128, 16
)

// hold is a machine that is held for asks of a class, for the rest of the pass.
type hold struct {
	slot int32
	c    *class
	task schema.TaskName // the first of them
	// holder names the ask, or what goes together, see holderOf.
	holder string
	// room is when the ask is expected to have room there; zero if that is not known.
	room time.Time
	// strict says that this was expected to be before now: nothing is put there any more
	// because it should have gone by then.
	strict bool
	spare  backfill.Leftover // what the ask will leave of the room
	gang   bool              // it is held for tasks that go together
}

// holding is what machines are held by, and what says until when.
type holding struct {
	holds  []hold // of this pass
	putOff bool   // it has put off a search, see PutsOff
	// time and ends are what SetTimes said.
	time time.Time
	ends func(schema.TaskName) time.Time
}

// stuck is what is remembered of asks that go together and found no places: they are not searched
// for again before the cell has changed in a way that may help.
type stuck struct {
	key       string // of the asks
	shapes    int    // of the snapshot
	preempts  bool
	changes   int // of the snapshot, see Snapshot.happened
	position  int // in the log, up to which fits is brought up to date
	flips     int
	holds     []hold        // of others, when it was decided
	budgets   map[int32]int // of the jobs whose tasks could have gone
	protected int           // version of what is protected
	fits      [][]uint16    // by kind, see kind.fits; nil if no places were searched for
	whys      []Why
	open      bool // the search did not come to its end
	searches  int  // how often places were searched for, in vain
	again     int  // the pass from which on that is done again: others have their turns until then
}

// SetTimes says what time it is, and until when a task that a machine holds is expected
// to run: the zero time if that is not known; nil if it is known of none. That holds for the
// passes that follow, which ask it of tasks of machines that may be held, see Ask.Held.
func (s *Snapshot) SetTimes(now time.Time, ends func(schema.TaskName) time.Time) {
	s.time, s.ends = now, ends
}

// PutsOff reports whether the last pass has put off the search for places for asks that go together: one of the passes
// that follow makes it, even if nothing else changes.
func (s *Snapshot) PutsOff() bool { return s.putOff }

func (s *Snapshot) reserveAfter() time.Duration {
	if s.options.ReserveAfter == 0 {
		return DefaultReserveAfter
	}
	return s.options.ReserveAfter
}

// reserves reports whether a machine may be held for an ask that has waited so long, where
// it is not known when there is room: after the time that Options.ReserveAfter says for as
// long again, then not for as long, then for twice as long, then not for twice as long, and so
// on. So a machine is held at last for longer than any task runs there, by five times as
// long; and what never comes to run costs others two thirds of the time at most.
func (s *Snapshot) reserves(waited time.Duration) bool {
	n := uint64(waited/s.reserveAfter()) + 1
	return n>>(bits.Len64(n)-2)&1 == 0
}

// hold keeps a machine free for the ask, if it has waited long: of those that would take it
// when empty the one that has room for it first, as far as that is known, or else lacks the
// least. Of asks of its priority or lower those only are put there that are not in its way,
// see Snapshot.behind. It is the machine that was held before unless another one is much
// earlier.
func (p *pass) hold(c *class, a *Ask, d *Decision) {
	s := p.snapshot
	if !s.holdsMore(a.Waited) {
		return
	}
	best, ok := s.findHold(c, a)
	if !ok || best.room.IsZero() && !s.reserves(a.Waited) {
		return
	}
	if best.room.IsZero() {
		best.spare = s.spareWhoeverGoes(c, best.slot)
	}
	name := s.nodes.At(best.slot).Name
	s.addHold(hold{slot: best.slot, c: c, task: a.Name, holder: holderOf(a), room: best.room, spare: best.spare, strict: s.isOverdue(a, name)})
	d.Why.Held, d.Why.Room, d.RoomUntil = name, best.room, best.next
}

// holdsMore reports whether one machine more may be held for an ask that has waited so long.
func (s *Snapshot) holdsMore(waited time.Duration) bool {
	after := s.reserveAfter()
	return after >= 0 && waited >= after && s.heldAlone() < 1+s.slots.Len()/holdShare
}

// heldAlone returns how many machines are held but for what goes together.
func (s *Snapshot) heldAlone() (n int) {
	for i := range s.holds {
		if !s.holds[i].gang {
			n++
		}
	}
	return n
}

// endHolds gives up what was held in a pass.
func (s *Snapshot) endHolds() {
	for _, h := range s.holds {
		s.rows.Edit(h.slot).heldAt = -1
		s.shade(h.slot)
	}
	s.holds, s.heldFor = s.holds[:0], nil // forks may have these
}

// chance is a machine that may be held for an ask.
type chance struct {
	slot  int32
	short float32 // what it lacks, as a share of the ask
	room  time.Time
	next  time.Time // when the first of those should have gone that do later than now; zero for none
	spare backfill.Leftover
}

// findHold finds the machine that is to be held for an ask.
func (s *Snapshot) findHold(c *class, a *Ask) (best chance, ok bool) {
	looks := holdSearch
	was, held := s.slots.Get(a.Held)
	if held = held && s.mayHold(c, was); held {
		looks = holdLooks
	}
	list := s.nearest(c, looks)
	if len(list) == 0 {
		return chance{}, false
	}
	for i := range list {
		s.expect(c, &list[i])
	}
	best = slices.MinFunc(list, s.compareChances)
	if !held || best.slot == was {
		return best, true
	}
	own := chance{slot: was, short: s.shortOf(c, was)}
	since := a.HeldSince
	if since.IsZero() {
		since = s.time
	}
	if s.expect(c, &own); earlier(&best, &own, since) {
		return best, true
	}
	return own, true
}

// earlier reports whether a machine is worth that another one is given up for it, which has
// been held since some time: it has room in less than half of the time from then on, or is the
// only one of which that is known, or of neither is and it lacks less than half. So a machine is
// not given up only because time passes, and seldom because others change.
func earlier(is, own *chance, since time.Time) bool {
	switch {
	case is.room.IsZero() && own.room.IsZero():
		return 2*is.short < own.short
	case is.room.IsZero() || own.room.IsZero():
		return own.room.IsZero()
	}
	return 2*is.room.Sub(since) < own.room.Sub(since)
}

// compareChances orders machines by when they have room, as far as that is known, then by
// what they lack.
func (s *Snapshot) compareChances(a, b chance) int {
	unknown := func(c chance) byte { return boolByte(c.room.IsZero()) }
	return cmp.Or(cmp.Compare(unknown(a), unknown(b)), a.room.Compare(b.room), s.compareShort(a, b))
}

func (s *Snapshot) compareShort(a, b chance) int {
	return cmp.Or(cmp.Compare(a.short, b.short), s.compareSlots(a.slot, b.slot))
}

// mayHold reports whether a machine would take the ask if it were empty, is held for
// nobody else, and is claimed by no task that the ask may not evict: that one was there first.
func (s *Snapshot) mayHold(c *class, slot int32) bool {
	r := s.rows.At(slot)
	return r.state == stateUp && r.heldAt < c.priority && s.admits(c, slot, r) == fine && s.fitsEmpty(c, slot) && (r.claims == 0 || s.outranksClaims(c, slot))
}

// outranksClaims reports whether the tasks that have claims on a machine may be put there although it
// is held for an ask, since this may evict them.
func (s *Snapshot) outranksClaims(c *class, slot int32) bool {
	for id := s.nodes.At(slot).first; id >= 0; id = s.tasks.At(id).nextHere {
		if t := s.tasks.At(id); t.claim && !t.back && (!s.options.Preempt || t.priority >= c.below || s.isProtected(t.job)) {
			return false
		}
	}
	return true
}

// nearest returns the machines that lack the least for an ask, the least first.
func (s *Snapshot) nearest(c *class, most int) []chance {
	var list []chance
	for i := range s.nodes.Len() {
		if !s.mayHold(c, i) {
			continue
		}
		x := chance{slot: i, short: s.shortOf(c, i)}
		if at, _ := slices.BinarySearchFunc(list, x, s.compareShort); at < most {
			list = slices.Insert(list, at, x)
			list = list[:min(len(list), most)]
		}
	}
	return list
}

// ending is a task that is expected to have gone at some time.
type ending struct {
	id int32
	at time.Time
}

// expect finds out when a machine is expected to have room for an ask: once enough of its
// tasks have ended, those that the ask may evict at once.
func (s *Snapshot) expect(c *class, x *chance) {
	endings := s.endings(c, x.slot)
	lack, ports := s.deficit(c, x.slot)
	var gone []int32
	for i, l := range endings {
		t := s.tasks.At(l.id)
		gain := s.gain(c, t)
		for d := range dims {
			lack[d] -= gain[d]
		}
		ports -= s.portGain(t)
		gone = append(gone, l.id)
		if x.next.IsZero() && l.at.After(s.time) {
			x.next = l.at
		}
		if i+1 < len(endings) && endings[i+1].at.Equal(l.at) || lack[0] > 0 || lack[1] > 0 || lack[2] > 0 || ports > 0 {
			continue
		}
		if s.fitsWithout(c, x.slot, gone) {
			x.room, x.spare = l.at, backfill.Of(lack, ports)
			return
		}
	}
}

// endings returns the tasks of a machine of which it is known when they will have gone, the
// first first.
func (s *Snapshot) endings(c *class, slot int32) (list []ending) {
	for id := s.nodes.At(slot).first; id >= 0; id = s.tasks.At(id).nextHere {
		t := s.tasks.At(id)
		switch {
		case t.claim || t.inAlloc >= 0 || c.staysWith(t):
		case s.mayMakeRoom(c, id):
			list = append(list, ending{id, s.time})
		case s.ends != nil:
			if at := s.ends(s.jobs.At(t.job).name.Task(int(t.index))); at.After(s.time) {
				list = append(list, ending{id, at})
			} else if !at.IsZero() {
				list = append(list, ending{id, s.time})
			}
		}
	}
	slices.SortFunc(list, func(a, b ending) int { return cmp.Or(a.at.Compare(b.at), s.compareTasks(a.id, b.id)) })
	return list
}

// keptFrom reports whether a machine is held for another ask, and a task of the class would
// be in its way.
func (s *Snapshot) keptFrom(c *class, slot int32) bool {
	if s.rows.At(slot).heldAt < c.priority {
		return false
	}
	h := s.holdOn(slot)
	return h == nil || !s.behind(c, h)
}

// behind reports whether a task of a class may run on a machine that is held for another
// one: it has gone when that has room, or is evicted then, or the room is enough for both.
func (s *Snapshot) behind(c *class, h *hold) bool {
	return s.clears(c, h) || !h.strict && s.suffices(c, h)
}

// clears reports whether a task of a class will have gone once the other one has room.
func (s *Snapshot) clears(c *class, h *hold) bool {
	return s.yields(c, h) || s.goneBy(c, h)
}

// yields reports whether a task of a class may be evicted once the other one has room.
func (s *Snapshot) yields(c *class, h *hold) bool {
	return s.options.Preempt && c.priority < h.c.below && !c.protected
}

// goneBy reports whether a task of a class has ended by then.
func (s *Snapshot) goneBy(c *class, h *hold) bool {
	return !h.strict && c.lasts > 0 && !h.room.IsZero() && !s.time.Add(c.lasts).After(h.room)
}

// suffices reports whether the room is enough for a task of the class, too. Devices are not counted:
// where both want some it is not, nor where relations matter.
func (s *Snapshot) suffices(c *class, h *hold) bool {
	if c.needs != nil && h.c.needs != nil || c.kin != nil || h.c.kin != nil || slices.ContainsFunc(c.numbers, func(p uint16) bool { return slices.Contains(h.c.numbers, p) }) {
		return false
	}
	return s.leaves(c, h).Enough()
}

// leaves returns what a task of a class leaves of what is spare.
func (s *Snapshot) leaves(c *class, h *hold) backfill.Leftover {
	return h.spare.Less(c.limit, int(c.portsOn(s.nodes.At(h.slot))))
}

// holdOn returns what a machine is held for; nil for nothing.
func (s *Snapshot) holdOn(slot int32) *hold {
	for i := range s.holds {
		if s.holds[i].slot == slot {
			return &s.holds[i]
		}
	}
	return nil
}

// goBehind takes what a task of a class gets on a machine that is held off what others may
// have there. It returns for what it is held, where the
// task is there only since it may be evicted.
func (s *Snapshot) goBehind(c *class, slot int32) (behind string) {
	h := (*hold)(nil)
	if s.rows.At(slot).heldAt >= 0 {
		h = s.holdOn(slot)
	}
	switch {
	case h == nil:
	case !s.clears(c, h):
		h.spare = s.leaves(c, h)
	case !s.goneBy(c, h): // it counts as one that goes, whether or not there is room for both
		return h.holder
	}
	return ""
}

// choosePorts gives the ask's ports numbers on a machine: those that it asks for, else free ones that are none of
// those for which the machine is held.
func (s *Snapshot) choosePorts(c *class, a *Ask, slot int32, seed uint64) schema.Ports {
	n := s.nodes.At(slot)
	book := &n.ports
	if s.rows.At(slot).heldAt >= 0 {
		if h := s.holdOn(slot); h != nil && h.c != c && len(h.c.numbers) > 0 {
			with := n.ports
			with.Detach()
			for _, p := range h.c.numbers {
				with.Take(int(p))
			}
			if with.Free(n.Ports.First, n.Ports.Last) >= c.ports {
				book = &with
			}
		}
	}
	return a.choosePorts(book, n.Ports, seed)
}

// staysWith reports whether a task that a machine holds goes together with the class, and stays: what is held
// there for the class could not have its room.
func (c *class) staysWith(t *task) bool { return !t.stopping && slices.Contains(c.with, t.job) }

// takeStaying takes the room of what stays on a machine from some of it.
func (s *Snapshot) takeStaying(c *class, slot int32, of *vector) {
	for id := s.nodes.At(slot).first; id >= 0; id = s.tasks.At(id).nextHere {
		if t := s.tasks.At(id); c.staysWith(t) {
			for d, v := range s.gain(c, t) {
				of[d] -= v
			}
		}
	}
}

// fitsEmpty reports whether the ask would fit if the machine were empty, but for what goes together with it.
func (s *Snapshot) fitsEmpty(c *class, slot int32) bool {
	n := s.nodes.At(slot)
	capacity := vectorOf(n.Capacity)
	if len(c.with) > 0 {
		s.takeStaying(c, slot, &capacity)
	}
	for d := range dims {
		if c.limit[d] > capacity[d] {
			return false
		}
	}
	for _, p := range c.numbers {
		if slices.Contains(n.BusyPorts, int(p)) {
			return false
		}
	}
	ports := c.portsOn(s.nodes.At(slot))
	return ports == 0 || n.Ports.First > 0 && int(ports) <= n.Ports.Last-n.Ports.First+1-len(n.BusyPorts)
}

// fitsHowMany returns how many tasks of a class would fit on a machine that is empty, at most.
func (s *Snapshot) fitsHowMany(c *class, slot int32) int {
	most := int64(math.MaxInt32)
	for d, v := range vectorOf(s.nodes.At(slot).Capacity) {
		if c.limit[d] > 0 {
			most = min(most, v/c.limit[d])
		}
	}
	return int(most)
}

// await finds out when a machine is expected to have room for what is to be held there, which may be now.
func (s *Snapshot) await(c *class, x *chance) {
	if s.check(c, x.slot) != fine {
		s.expect(c, x)
		return
	}
	x.room = s.time
	x.spare = backfill.Of(s.deficit(c, x.slot))
}

// spareWhoeverGoes returns what is spare at least beside an ask once it has room on a machine, of
// whose tasks it is not known which will have gone then: what runs there beside it keeps no room
// from it that these leave.
func (s *Snapshot) spareWhoeverGoes(c *class, slot int32) (least backfill.Leftover) {
	lack, ports := s.deficit(c, slot)
	var gains [dims][]int64
	for id := s.nodes.At(slot).first; id >= 0; id = s.tasks.At(id).nextHere {
		t := s.tasks.At(id)
		if t.inAlloc >= 0 || c.staysWith(t) {
			continue
		}
		goes := s.mayMakeRoom(c, id)
		for d, v := range s.gain(c, t) {
			if goes {
				lack[d] -= v
			} else {
				gains[d] = append(gains[d], v)
			}
		}
		if goes {
			ports -= s.portGain(t)
		}
	}
	least.Ports = max(-ports, 0)
	for d := range dims {
		least.Room[d] = backfill.LeastBeyond(lack[d], gains[d])
	}
	return least
}

// shortOf returns what the machine lacks for the ask, as a share of it.
func (s *Snapshot) shortOf(c *class, slot int32) (short float32) {
	r := s.rows.At(slot)
	free := c.free(r)
	for d := range dims {
		if lack := c.limit[d] - free[d]; lack > 0 {
			short += float32(lack) / float32(c.limit[d])
		}
	}
	if c.needs != nil && !s.hasDevices(c, slot) {
		short++
	}
	if c.portsOn(s.nodes.At(slot)) > r.ports || s.nodes.At(slot).ports.HasAny(c.numbers) {
		short++
	}
	return short
}

// lastsOf returns how long a task of an ask is expected to run, rounded up by an eighth at
// most, so that asks that last about as long are of one class; 0 if that is not known.
func lastsOf(a *Ask) time.Duration {
	if a.Lasts <= 0 {
		return 0
	}
	n := uint64(a.Lasts)
	step := uint64(1) << max(bits.Len64(n)-4, 0)
	return time.Duration((n + step - 1) / step * step)
}

// addHold notes that a machine is held from now on.
func (s *Snapshot) addHold(h hold) {
	s.holds = append(s.holds, h)
	s.rows.Edit(h.slot).heldAt = h.c.priority
	s.shade(h.slot)
}

// Hold has a machine held for an ask as a decision says that it is, for questions to the snapshot and
// until the next pass ends. What goes together has it held for all that are to be there.
func (s *Snapshot) Hold(a *Ask, d *Decision) {
	s.merge()
	slot, ok := s.slots.Get(d.Why.Held)
	if !ok {
		return
	}
	h := hold{slot: slot, c: s.single(a), task: a.Name, holder: holderOf(a), gang: a.gathers(), strict: s.isOverdue(a, d.Why.Held)}
	if i := slices.IndexFunc(s.holds, func(o hold) bool { return o.slot == slot && o.gang && o.holder == h.holder }); i >= 0 {
		was := s.holds[i]
		s.holds = slices.Concat(s.holds[:i], s.holds[i+1:]) // forks may have these
		h.c, h.task, h.strict = h.c.beside(was.c), was.task, h.strict || was.strict
	}
	x := chance{slot: slot}
	s.await(h.c, &x)
	if h.room, h.spare = x.room, x.spare; h.room.IsZero() {
		h.spare = s.spareWhoeverGoes(h.c, slot)
	}
	if h.gang {
		h.room = d.Why.Room // when all have
	}
	s.addHold(h)
}

// isOverdue reports whether an ask was to have room on the machine of a name, which is held for it, before now.
func (s *Snapshot) isOverdue(a *Ask, name string) bool {
	return name == a.Held && !a.HeldUntil.IsZero() && s.time.After(a.HeldUntil)
}

// namedHolds is how many tasks are named for which machines are held.
const namedHolds = 2

// countHeld counts machines by the tasks for which they are held, if these are few, and takes them from
// the sum of all.
func (s *Snapshot) countHeld(c *class, counts *[answers]int) []ReasonCount {
	all := *counts
	out := s.countBy(c, &all, isHeld, func(slot int32) (Reason, bool) {
		h := s.holdOn(slot)
		if h == nil {
			return "", false
		}
		return Reason("are held for " + h.task.Short() + ", which is ahead in the queue"), true
	})
	if len(out) > namedHolds {
		return nil
	}
	*counts = all
	return out
}
