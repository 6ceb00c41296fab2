package placement

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/schema"
)

// refusal is what each machine says to a class for which there is no room. It
// is kept, so that a pending class is checked again only on machines that
// changed: an event that could help it is one of these.
type refusal struct {
	epoch       int
	position    int
	flips       int
	skews       int // skewVersion
	protectedOn protectedOn
	by          []answer // by slot; with within set where change would do
	counts      [answers]int
	best        lack // the least that any machine lacks
	change      *Change
	stale       bool // change must be looked for again
}

// within marks a machine on which the smallest change would do.
const within answer = 0x80

// refuse brings the refusals of a class up to date and returns the number of
// machines that have room after all.
func (s *Snapshot) refuse(c *class) int {
	r, n := &c.refusal, int(s.nodes.Len())
	switch {
	case len(r.by) != n || s.stale(c, r.epoch, r.position) || r.skews != s.skewVersion(c) || !s.followRefusal(c):
		r.by = slices.Grow(r.by[:0], n)[:n]
		r.counts = [answers]int{}
		for slot := range s.nodes.Len() {
			if s.rows.At(slot).state != stateGone {
				r.by[slot] = s.check(c, slot)
				r.counts[r.by[slot]]++
			}
		}
		r.stale = true
	default:
		for _, slot := range s.log[r.position-s.trimmed:] {
			s.refuseAgain(c, slot)
		}
	}
	r.epoch, r.position, r.flips, r.skews = s.epoch, s.now(), s.kindred.flipNow(), s.skewVersion(c)
	if c.job >= 0 {
		c.changes = s.jobs.At(c.job).changes
	}
	return r.counts[fine]
}

// refuseAgain asks one machine again, and sees whether the smallest change
// stays what it is.
func (s *Snapshot) refuseAgain(c *class, slot int32) {
	r := &c.refusal
	was, now := r.by[slot], s.check(c, slot)
	r.counts[was&^within]--
	r.counts[now]++
	r.by[slot] = now
	if r.stale {
		return
	}
	l, ok := s.lacks(c, slot)
	switch {
	case r.best.weight == 0 || ok && l.weight < r.best.weight:
		r.stale = true
		return
	case ok && l.covered(&r.best):
		r.by[slot] |= within
	}
	if (was^r.by[slot])&within == 0 {
		return
	}
	change := *r.change // the old one was given away
	if was&within != 0 {
		change.Machines--
	} else {
		change.Machines++
	}
	r.change, r.stale = &change, change.Machines == 0
}

// explain says why a class is pending.
func (s *Snapshot) explain(c *class, w *Why) {
	s.refuse(c)
	r := &c.refusal
	if r.stale {
		r.change, r.stale = s.smallestChange(c), false
	}
	w.Machines, w.Examined, w.Feasible = s.slots.Len(), s.slots.Len(), r.counts[fine]
	w.Beyond, w.Protected = s.wantsBeyond(c), s.countProtected(c)
	counts := r.counts
	w.Refused, w.Change = countReasons(&counts, slices.Concat(s.countTaints(c, &counts), s.countDevices(c, &counts), s.countAlternatives(c, &counts), s.countSkews(c, &counts), s.countRelations(c, &counts), s.countHeld(c, &counts))), r.change
}

// wantsBeyond returns what the asks of a class want more of than any machine has.
func (s *Snapshot) wantsBeyond(c *class) schema.Resources {
	if s.most == nil {
		s.most = &vector{}
		for slot := range s.nodes.Len() {
			if s.rows.At(slot).state == stateGone {
				continue
			}
			for d, v := range vectorOf(s.nodes.At(slot).Capacity) {
				s.most[d] = max(s.most[d], v)
			}
		}
	}
	var out vector
	for d, v := range c.limit {
		if v > s.most[d] {
			out[d] = v
		}
	}
	return out.resources()
}

// countReasons counts what machines answered, most frequent first, after the reasons that out has.
func countReasons(counts *[answers]int, out []ReasonCount) []ReasonCount {
	for a, n := range counts {
		if a := answer(a); a != fine && n > 0 {
			out = append(out, ReasonCount{reasons[a], n})
		}
	}
	slices.SortStableFunc(out, func(a, b ReasonCount) int { return cmp.Compare(b.Machines, a.Machines) })
	return out
}

// lack is what a machine is short of for an ask.
type lack struct {
	less   vector
	weight float32 // as a share of the ask, summed over the dimensions
}

// covered reports whether a change as large as o would do.
func (l *lack) covered(o *lack) bool {
	return l.less[0] <= o.less[0] && l.less[1] <= o.less[1] && l.less[2] <= o.less[2]
}

// smallestChange finds what would have to change so that the class fits: the
// least reduction of its limit, as a share of it, or else the one requirement
// without which there is room.
func (s *Snapshot) smallestChange(c *class) *Change {
	r := &c.refusal
	r.best = lack{}
	var at []int32 // machines that lack as much as the best
	var share [dims]float32
	for d, v := range c.limit {
		if v > 0 {
			share[d] = 1 / float32(v)
		}
	}
	for slot, by := range r.by {
		by &^= within
		r.by[slot] = by
		if by < lacksCPU || by > lacksDisk {
			continue
		}
		// Most machines lack more than the best so far, as a rough sum shows.
		free := c.free(s.rows.At(int32(slot)))
		cpu, ram, disk := c.limit[0]-free[0], c.limit[1]-free[1], c.limit[2]-free[2]
		rough := float32(max(cpu, 0))*share[0] + float32(max(ram, 0))*share[1] + float32(max(disk, 0))*share[2]
		if r.best.weight > 0 && rough > 1.0001*r.best.weight {
			continue
		}
		l, ok := s.lacks(c, int32(slot))
		switch {
		case !ok:
		case r.best.weight == 0 || l.weight < r.best.weight:
			r.best, at = l, append(at[:0], int32(slot))
		case l.covered(&r.best): // so by as much: less would be the best
			at = append(at, int32(slot))
		}
	}
	if r.best.weight == 0 {
		return s.withoutOne(c)
	}
	for _, slot := range at {
		r.by[slot] |= within
	}
	return &Change{Less: r.best.less.resources(), Machines: len(at)}
}

// lacks returns what a machine is short of, if that is all that is in the way.
func (s *Snapshot) lacks(c *class, slot int32) (l lack, ok bool) {
	if by := c.refusal.by[slot] &^ within; by < lacksCPU || by > lacksDisk || s.rows.At(slot).state == stateGone {
		return l, false
	}
	free := c.free(s.rows.At(slot))
	for d := range dims {
		if short := c.limit[d] - free[d]; short > 0 {
			if free[d] <= 0 {
				return l, false // to ask for nothing is no change of an ask
			}
			l.less[d] = short
			l.weight += float32(short) / float32(c.limit[d])
		}
	}
	return l, c.portsOn(s.nodes.At(slot)) <= s.rows.At(slot).ports && !s.nodes.At(slot).ports.HasAny(c.numbers) && (c.needs == nil || s.hasDevices(c, slot))
}

// withoutOne looks for the requirement without which most machines have room.
func (s *Snapshot) withoutOne(c *class) *Change {
	var best *Change
	try := func(what string, without class) {
		n := 0
		without.skews = s.skewsOf(without.skewLimits()) // other domains may get its tasks
		for slot := range s.nodes.Len() {
			if s.rows.At(slot).state != stateGone && s.check(&without, slot) == fine {
				n++
			}
		}
		if n > 0 && (best == nil || n > best.Machines) {
			best = &Change{Without: what, Machines: n}
		}
	}
	for i := range c.rules {
		w := *c
		w.rules = slices.Delete(slices.Clone(c.rules), i, i+1)
		try(c.rules[i].String(), w)
	}
	s.withoutAlternative(c, try)
	for i, b := range c.ask.PerDomain {
		w := *c
		w.bounds = slices.Delete(slices.Clone(c.bounds), i, i+1)
		try("at most "+strconv.Itoa(b.Max)+" per "+b.Attribute, w)
	}
	for i, k := range c.skews {
		w := *c
		w.skews = slices.Delete(slices.Clone(c.skews), i, i+1)
		try(k.String(), w)
	}
	s.withoutDevices(c, try)
	if c.numbers != nil {
		w := *c
		w.numbers, w.ports = nil, int32(len(c.ask.Ports))
		try("the numbers of ports", w)
	}
	if len(c.ask.Ports) > 0 {
		w := *c
		w.ports, w.numbers = 0, nil
		try("ports", w)
	}
	if c.refusal.counts[isTainted] > 0 {
		w := *c
		w.tolerant = true
		try("taints", w)
	}
	if c.kin != nil {
		s.withoutRelation(c, try)
	}
	if len(c.avoid) > 0 {
		w := *c
		w.avoid = nil
		try("avoiding machines on which it crashed", w)
	}
	return best
}

// withoutAlternative tries to do without each constraint of the alternatives, and without
// these.
func (s *Snapshot) withoutAlternative(c *class, try func(what string, without class)) {
	for i, all := range c.anyOf {
		for k := range all {
			w := *c
			w.anyOf = slices.Clone(c.anyOf)
			if w.anyOf[i] = slices.Delete(slices.Clone(all), k, k+1); len(all) > 1 {
				try(all[k].String()+" in anyOf["+strconv.Itoa(i)+"]", w)
			}
		}
	}
	if c.anyOf != nil {
		w := *c
		w.anyOf = nil
		try("anyOf", w)
	}
}

// withoutDevices tries to do without each of the devices that are asked for whatever the
// alternative, and without the alternatives.
func (s *Snapshot) withoutDevices(c *class, try func(what string, without class)) {
	for i, d := range c.ask.Devices {
		less := *c.ask
		less.Devices = slices.Delete(slices.Clone(less.Devices), i, i+1)
		w := *c
		w.needs = s.kinds.choice(&less)
		try(d.String(), w)
	}
	if len(c.ask.FirstOf) > 0 {
		less := *c.ask
		less.FirstOf = nil
		w := *c
		w.needs = s.kinds.choice(&less)
		try("firstOf", w)
	}
}

// single returns the class of one ask outside a pass.
func (s *Snapshot) single(a *Ask) *class {
	c := s.newClass(a, "")
	c.job = s.jobID(a.Name.JobName)
	c.protected = s.isProtected(c.job)
	return c
}

// Explain says how all machines answer an ask, without placing it.
func (s *Snapshot) Explain(a Ask) Why {
	var w Why
	s.explain(s.single(&a), &w)
	return w
}

// Verdict says how one machine answers an ask; false if there is no such
// machine.
func (s *Snapshot) Verdict(a Ask, machine string) (Verdict, bool) {
	slot, ok := s.slots.Get(machine)
	if !ok {
		return Verdict{}, false
	}
	c := s.single(&a)
	v := Verdict{Machine: machine, Reason: s.reasonOf(c, slot, s.check(c, slot))}
	if c.inSet {
		v.Reason = s.reasonOf(c, slot, s.checkSet(c, &a, slot))
		return v, true
	}
	switch v.Reason {
	case "":
		v.Score = s.scoreOf(c, slot)
	case ReasonConstraint:
		v.Fails = allFailed(c.rules, slot)
	}
	return v, true
}

// Eligible returns the names of the machines that an ask may be placed on,
// now or when there is room, in order: those on which a system job has a task.
// A machine that is down, draining, cordoned or has a condition is eligible all
// the same.
func (s *Snapshot) Eligible(a Ask) []string { return s.eligibleFor(s.single(&a)) }

// MayStay is Eligible whatever the taints of machines are: what runs there stays.
func (s *Snapshot) MayStay(a Ask) []string {
	c := s.single(&a)
	c.tolerant = true
	return s.eligibleFor(c)
}

func (s *Snapshot) eligibleFor(c *class) (names []string) {
	for slot := range s.nodes.Len() {
		if s.rows.At(slot).state == stateGone {
			continue
		}
		switch s.admits(c, slot, s.rows.At(slot)) {
		case fine, isDown, isDraining, isCordoned, isFullDomain, isSkewed, lacksKin, isApart, isShunned,
			hasReadOnlyFS, hasBrokenRuntime, hasDiskPressure, hasMemoryPressure, hasClockSkew, hasCondition:
			if s.eligible(c, slot) {
				names = append(names, s.nodes.At(slot).Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// eligible checks what a machine is, whatever its state.
func (s *Snapshot) eligible(c *class, slot int32) bool {
	limit := schema.Resources{CPUMilli: c.limit[0], RAMBytes: c.limit[1], DiskBytes: c.limit[2]}
	return s.suits(c, slot) && limit.Fits(s.nodes.At(slot).Capacity)
}

// suits is eligible whatever the size of the machine.
func (s *Snapshot) suits(c *class, slot int32) bool {
	if failed(c.rules, slot) != nil || !anyHolds(c.anyOf, slot) {
		return false
	}
	if s.taintOf(c, slot) != nil {
		return false
	}
	return c.needs == nil || c.needs.Exist(s.nodes.At(slot).devices) >= 0
}

// followRefusal takes over what relations have become otherwise for what machines have
// refused. It reports false when all have to be asked again.
func (s *Snapshot) followRefusal(c *class) bool {
	r := &c.refusal
	if c.kin == nil || r.flips == s.kindred.flipNow() {
		return true
	}
	concerns, known := s.kindred.concerns(c.kin, r.flips)
	for _, w := range concerns {
		if w.all {
			return false
		}
		for slot := range s.nodes.Len() {
			if w.column.At[slot] == w.value && s.rows.At(slot).state != stateGone {
				s.refuseAgain(c, slot)
			}
		}
	}
	return known
}

// reasonOf says why a machine has given an answer to a class.
func (s *Snapshot) reasonOf(c *class, slot int32, a answer) Reason {
	if t := s.taintOf(c, slot); a == isTainted && t != nil {
		return taintReason(t, c.user)
	}
	if a == hasNoDevice {
		return s.deviceReason(c, slot)
	}
	if a == hasNoneOf {
		return noneOf(c.anyOf, slot)
	}
	if a == isSkewed {
		if k := s.skewed(c, slot); k != nil {
			return k.reason(slot, s.arrived(c, k.column))
		}
	}
	if a.related() && c.kin != nil {
		if t, now := s.kindred.related(c.kin, slot); now == a {
			return s.kindred.reason(t, a, s.repeller)
		}
	}
	return reasons[a]
}

func taintReason(t *Taint, user string) Reason {
	if len(t.Users) > 0 && !slices.Contains(t.Users, user) {
		return Reason("have the taint " + t.String() + ", which only tasks of " + strings.Join(t.Users, ", ") + " can tolerate")
	}
	return Reason("have the taint " + t.String() + ", which is not tolerated")
}

// deviceReason says what a class lacks of the devices of a machine, free or not.
func (s *Snapshot) deviceReason(c *class, slot int32) Reason {
	return cmp.Or(Reason(lackOf(s.nodes.At(slot).devices, c.needs, c.ask)), ReasonNoDevice)
}

// countDevices counts machines by what their devices lack, and takes them from the sum of all.
func (s *Snapshot) countDevices(c *class, counts *[answers]int) []ReasonCount {
	return s.countBy(c, counts, hasNoDevice, func(slot int32) (Reason, bool) { return s.deviceReason(c, slot), true })
}

// countTaints counts machines by the taints that they refuse a class for, and takes them
// from the sum of all.
func (s *Snapshot) countTaints(c *class, counts *[answers]int) []ReasonCount {
	return s.countBy(c, counts, isTainted, func(slot int32) (Reason, bool) {
		t := s.taintOf(c, slot)
		if t == nil {
			return "", false
		}
		return taintReason(t, c.user), true
	})
}

// noneOf says which constraint of each alternative fails on a machine, the first of each.
func noneOf(alternatives [][]rule, slot int32) Reason {
	var all []string
	for _, rules := range alternatives {
		if r := failed(rules, slot); r != nil {
			all = append(all, r.String())
		}
	}
	return Reason("fail " + strings.Join(slices.Compact(all), " and ") + ", of which anyOf wants one")
}

// countAlternatives counts machines by the constraints that they fail, one of each
// alternative, and takes them from the sum of all.
func (s *Snapshot) countAlternatives(c *class, counts *[answers]int) []ReasonCount {
	return s.countBy(c, counts, hasNoneOf, func(slot int32) (Reason, bool) { return noneOf(c.anyOf, slot), !anyHolds(c.anyOf, slot) })
}

// countSkews counts machines by the limits of skew that they refuse a class for, and takes
// them from the sum of all.
func (s *Snapshot) countSkews(c *class, counts *[answers]int) []ReasonCount {
	return s.countBy(c, counts, isSkewed, func(slot int32) (Reason, bool) {
		k := s.skewed(c, slot)
		if k == nil {
			return "", false
		}
		return k.reason(slot, s.arrived(c, k.column)), true
	})
}

// countBy counts the machines that gave an answer by what they say in detail, and takes
// them from the sum of all.
func (s *Snapshot) countBy(c *class, counts *[answers]int, of answer, detail func(slot int32) (Reason, bool)) (out []ReasonCount) {
	if counts[of] == 0 {
		return nil
	}
	by := map[Reason]int{}
	for slot, a := range c.refusal.by {
		if a&^within != of || s.rows.At(int32(slot)).state == stateGone {
			continue
		}
		if r, ok := detail(int32(slot)); ok {
			by[r]++
			counts[of]--
		}
	}
	for _, r := range slices.Sorted(maps.Keys(by)) {
		out = append(out, ReasonCount{r, by[r]})
	}
	return out
}

// repeller returns the first job, by name, that has a task and does not want one near that
// a term picks.
func (s *Snapshot) repeller(term int32) string {
	var first schema.JobName
	for p := range s.kindred.profiles.Len() {
		x := s.kindred.profiles.At(p)
		if !slices.Contains(x.repels, term) || s.jobs.At(x.job).held == 0 {
			continue
		}
		if name := s.jobs.At(x.job).name; first == (schema.JobName{}) || name.Compare(first) < 0 {
			first = name
		}
	}
	return first.Short()
}

// countRelations counts machines by the relations that they refuse a class for, and takes
// them from the sum of all.
func (s *Snapshot) countRelations(c *class, counts *[answers]int) (out []ReasonCount) {
	if c.kin == nil || counts[lacksKin]+counts[isApart]+counts[isShunned] == 0 {
		return nil
	}
	type key struct {
		a    answer
		term int32
	}
	index := map[key]int{}
	for slot, by := range c.refusal.by {
		a := by &^ within
		if !a.related() || s.rows.At(int32(slot)).state == stateGone {
			continue
		}
		t, now := s.kindred.related(c.kin, int32(slot))
		if now != a {
			continue
		}
		at, ok := index[key{a, t.term}]
		if !ok {
			reason := s.kindred.reason(t, a, s.repeller) // which another term may have, too
			if at = slices.IndexFunc(out, func(r ReasonCount) bool { return r.Reason == reason }); at < 0 {
				at = len(out)
				out = append(out, ReasonCount{Reason: reason})
			}
			index[key{a, t.term}] = at
		}
		out[at].Machines++
		counts[a]--
	}
	slices.SortFunc(out, func(a, b ReasonCount) int { return cmp.Compare(a.Reason, b.Reason) })
	return out
}

// withoutRelation tries to do without each relation that must hold.
func (s *Snapshot) withoutRelation(c *class, try func(what string, without class)) {
	for i, t := range c.kin.must {
		w := *c
		w.kin = c.kin.withoutTie(i)
		what := "affinity to "
		if t.apart {
			what = "anti-affinity to "
		}
		try(what+s.kindred.terms.At(t.term).Text(), w)
	}
	if len(c.kin.shy) > 0 {
		w, k := *c, *c.kin
		k.shy = nil
		w.kin = &k
		try("the anti-affinity of other tasks", w)
	}
}
