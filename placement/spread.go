package placement

// company is how many tasks of an ask's job stay, that is, are not stopping, where
// a machine is: the fewer, the better the job is spread.
type company struct {
	inDomain  int32 // of the attribute that the job is spread over
	onMachine int32
}

// less reports whether a is better: by domains, and among those that are as good
// by machines.
func (a company) less(b company) bool {
	if a.inDomain != b.inDomain {
		return a.inDomain < b.inDomain
	}
	return a.onMachine < b.onMachine
}

// companyOf returns what a task of a class would find on a machine. A job that
// does not mind how it is spread finds the same on all.
func (s *Snapshot) companyOf(c *class, slot int32) (out company) {
	if c.job < 0 || s.jobs.at(c.job).held == 0 || s.spreadOf(c.ask) == NoSpread {
		return company{}
	}
	l := s.layoutFor(s.spreadOf(c.ask))
	if len(l.column.values) > 1 {
		out.inDomain = s.tallyOf(c.job, l.column).stay[l.column.at[slot]]
	}
	out.onMachine = s.staysOnMachine(c.job, slot)
	return out
}

// keeps returns the machine that an ask gets whatever its score: that it prefers,
// or where it ran last, unless the best there is would be better for its spread.
func (p *pass) keeps(c *class, a *Ask) (slot int32, ok bool) {
	s := p.snapshot
	if slot, ok = s.slots.get(a.Prefer); ok && s.check(c, slot) == fine {
		return slot, true
	}
	if slot, ok = s.slots.get(a.Last); !ok || s.check(c, slot) != fine {
		return 0, false
	}
	if c.lone || c.job < 0 {
		return slot, true
	}
	first, _ := s.top(c)
	return slot, first < 0 || !p.companyLater(c, c.slots[first]).less(p.companyLater(c, slot))
}

// companyLater returns what a task of a class would find on a machine when the
// others of its job that are stopping, or want a machine again, are back where they
// ran last: if all of them make way for each other nothing is gained.
func (p *pass) companyLater(c *class, slot int32) company {
	s := p.snapshot
	out := s.companyOf(c, slot)
	if s.spreadOf(c.ask) == NoSpread {
		return out
	}
	column := s.layoutFor(s.spreadOf(c.ask)).column
	if domain := column.at[slot]; len(column.values) > 1 {
		t := s.tallyOf(c.job, column)
		out.inDomain = t.n[domain]
		for _, last := range p.returning[c.job] {
			if column.at[last] == domain {
				out.inDomain++
			}
		}
	}
	out.onMachine = s.onMachine(c.job, slot)
	for _, last := range p.returning[c.job] {
		if last == slot {
			out.onMachine++
		}
	}
	return out
}

// Uneven says where a task would be better for the spread of its job than where it
// is.
type Uneven struct {
	// Attribute is what the job is spread over, or MachineAttribute, when the
	// domains are as good, and only the machines differ.
	Attribute string
	From, To  string // values of it
	// FromTasks and ToTasks are how many tasks of the job stay there now: they
	// differ by two at least.
	FromTasks, ToTasks int
	Machine            string // that the task would get
}

// Uneven reports whether a task that a machine holds would get another one, if it
// were placed now, that is better for the spread of its job. The ask is the task's,
// whom the caller has removed from the snapshot. Nobody is evicted for that, and nobody
// loses what it must be near.
func (s *Snapshot) Uneven(a Ask, machine string) (Uneven, bool) {
	from, ok := s.slots.get(machine)
	if !ok {
		return Uneven{}, false
	}
	c := s.single(&a)
	c.epoch, c.cursor = s.epoch, -1
	s.examine(c)
	first, _ := s.best(c)
	if first < 0 {
		return Uneven{}, false
	}
	to := c.slots[first]
	was, is := s.companyOf(c, from), s.companyOf(c, to)
	if !is.less(was) || !s.leavesEven(c, from, to, 0) || s.isNeeded(s.profileOf(c.job, a.Relations), -1, from, to) {
		return Uneven{}, false
	}
	out := Uneven{
		Attribute: MachineAttribute, From: machine, To: s.nodes.at(to).Name, Machine: s.nodes.at(to).Name,
		FromTasks: int(was.onMachine) + 1, ToTasks: int(is.onMachine),
	}
	if is.inDomain < was.inDomain {
		column := c.layout.column
		out.Attribute, out.From, out.To = s.spreadOf(&a), column.values[column.at[from]], column.values[column.at[to]]
		out.FromTasks, out.ToTasks = int(was.inDomain)+1, int(is.inDomain)
	}
	return out, true
}
