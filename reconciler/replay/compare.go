package replay

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/schema"
)

// Difference is where what the replay decides of something is not what the log says. Field names
// are stable.
type Difference struct {
	// Of is a task, a job or a machine; "" is the cell.
	Of string    `json:"of"`
	At time.Time `json:"at"`
	// Logged and Replayed are the first events that differ; nil where there is none.
	Logged   *schema.Event `json:"logged"`
	Replayed *schema.Event `json:"replayed"`
	// Further is how many further events of the log about it are not compared.
	Further int    `json:"further"`
	Why     string `json:"why"`
}

// decision is an event in the words in which two are the same; "" of one that is not the cell's
// own doing.
func decision(e *schema.Event) string {
	switch e.Kind {
	case schema.EventSchedule:
		return "schedule on " + e.Machine
	case schema.EventEvict, schema.EventKill, schema.EventLost, schema.EventFail, schema.EventFinish:
		return fmt.Sprintf("%s on %s: %s", e.Kind, e.Machine, e.Cause)
	case schema.EventSubmit, schema.EventReject, schema.EventUpdate, schema.EventRemove, schema.EventRollout, schema.EventStale, schema.EventHold:
		return string(e.Kind)
	case schema.EventMachine:
		switch {
		case e.Declared:
			return "declared"
		case e.Input != nil && e.Input.Lost != nil:
			return "lost"
		case e.Input != nil && e.Input.Returned:
			return "returned"
		}
	}
	return ""
}

// of is what an event is about.
func of(e *schema.Event) string { return cmp.Or(e.Task, e.Job, e.Machine) }

// compare holds what the log says beside what the replay did.
func (p *player) compare(records []schema.EventRecord, stopped bool) {
	logged, replayed := map[string][]*schema.Event{}, map[string][]*schema.Event{}
	for i := range records {
		if e := &records[i].Event; decision(e) != "" && !(stopped && e.At.After(p.out.To)) {
			logged[of(e)] = append(logged[of(e)], e)
			p.out.Decisions++
		}
	}
	for i := range p.events {
		if e := &p.events[i]; decision(e) != "" && p.counts(e) {
			replayed[of(e)] = append(replayed[of(e)], e)
		}
	}
	names := map[string]bool{}
	for name := range logged {
		names[name] = true
	}
	for name := range replayed {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		p.compareOne(name, logged[name], replayed[name], stopped)
	}
	p.orders(records)
	slices.SortStableFunc(p.out.Differences, func(a, b Difference) int { return a.At.Compare(b.At) })
	for i := range p.out.Differences {
		p.out.Differences[i].Why = p.why(i)
	}
}

// counts reports whether an event of the replay is compared: those of the time when the cell was
// saved are, if what the log has of that time is.
func (p *player) counts(e *schema.Event) bool {
	return e.At.After(p.out.From) || p.cfg.LastEvent > 0 && e.At.Equal(p.out.From)
}

// compareOne compares what was decided about one thing. Where the log ends, or a condition has
// ended the replay, the other one may be a little ahead.
func (p *player) compareOne(name string, logged, replayed []*schema.Event, stopped bool) {
	n := 0
	for n < min(len(logged), len(replayed)) && decision(logged[n]) == decision(replayed[n]) {
		apart := logged[n].At.Sub(replayed[n].At).Abs()
		if apart > within {
			break
		}
		p.out.Apart = max(p.out.Apart, apart.Seconds())
		n++
	}
	p.out.Same += n
	ahead := p.out.To.Add(-within)
	switch {
	case n == len(logged) && n == len(replayed):
		return
	case n == len(logged) && replayed[n].At.After(ahead):
		return
	case n == len(replayed) && stopped && logged[n].At.After(ahead):
		p.out.Decisions -= len(logged) - n
		return
	}
	d := Difference{Of: name, Further: max(0, len(logged)-n-1)}
	if n < len(logged) {
		d.Logged, d.At = logged[n], logged[n].At
	}
	if n < len(replayed) {
		if d.Replayed = replayed[n]; d.Logged == nil || d.Replayed.At.Before(d.At) {
			d.At = d.Replayed.At
		}
	}
	p.out.Differences = append(p.out.Differences, d)
}

// orders compares, of the jobs of which all else is the same, in which order their tasks are
// started and stopped. What the log has at one time has no order.
func (p *player) orders(records []schema.EventRecord) {
	differ := map[string]bool{}
	for i := range p.out.Differences {
		d := &p.out.Differences[i]
		for _, e := range []*schema.Event{d.Logged, d.Replayed} {
			if e != nil {
				differ[e.Job] = true
			}
		}
	}
	logged, replayed := map[string][]*schema.Event{}, map[string][]*schema.Event{}
	take := func(to map[string][]*schema.Event, e *schema.Event) {
		if e.Task != "" && !differ[e.Job] && decision(e) != "" && p.counts(e) && !e.At.After(p.out.To) {
			to[e.Job] = append(to[e.Job], e)
		}
	}
	for i := range records {
		take(logged, &records[i].Event)
	}
	for i := range p.events {
		take(replayed, &p.events[i])
	}
	for _, job := range slices.Sorted(maps.Keys(logged)) {
		was, is := inOrder(logged[job]), inOrder(replayed[job])
		for i := range min(len(was), len(is)) {
			if said(was[i]) == said(is[i]) {
				continue
			}
			if len(was) == len(is) || was[i].At.Before(p.out.To.Add(-within)) {
				p.out.Differences = append(p.out.Differences, Difference{Of: job, At: was[i].At, Logged: was[i], Replayed: is[i], Further: len(was) - i - 1})
			}
			break
		}
	}
}

func said(e *schema.Event) string { return e.Task + " " + decision(e) }

// inOrder sorts the events of one time by what they say.
func inOrder(events []*schema.Event) []*schema.Event {
	slices.SortStableFunc(events, func(a, b *schema.Event) int {
		return cmp.Or(a.At.Compare(b.At), strings.Compare(said(a), said(b)))
	})
	return events
}

// why says why the i-th difference is there: what could not be played of what it is about; else
// an earlier difference; else what is left.
func (p *player) why(i int) string {
	d := &p.out.Differences[i]
	about := map[string]bool{d.Of: true}
	for _, e := range []*schema.Event{d.Logged, d.Replayed} {
		if e != nil {
			about[e.Job], about[e.Machine] = true, true
		}
	}
	delete(about, "")
	skipped := func(wanted func(*Skipped) bool) string {
		for j := range p.out.Skipped {
			if s := &p.out.Skipped[j]; !s.At.After(d.At) && wanted(s) {
				return fmt.Sprintf("%s%s: one was not played: %s", s.What, ofName(s.Of), s.Why)
			}
		}
		return ""
	}
	if why := skipped(func(s *Skipped) bool { return about[s.Of] }); why != "" {
		return why
	}
	for j := range i {
		e := &p.out.Differences[j]
		for _, x := range []*schema.Event{e.Logged, e.Replayed} {
			if about[e.Of] || x != nil && (about[x.Job] || about[x.Machine]) {
				return fmt.Sprintf("it follows from that of %s at %s", cmp.Or(e.Of, "the cell"), e.At.UTC().Format(time.TimeOnly))
			}
		}
	}
	if why := skipped(func(*Skipped) bool { return true }); why != "" {
		return why
	}
	switch {
	case i > 0:
		return fmt.Sprintf("it came after that of %s at %s, and may follow from it", cmp.Or(p.out.Differences[0].Of, "the cell"), p.out.Differences[0].At.UTC().Format(time.TimeOnly))
	case p.cfg.Release != p.cfg.Plays:
		return fmt.Sprintf("release %s has decided then, and %s decides here", p.cfg.Release, p.cfg.Plays)
	}
	return "the log does not say why: what no event tells is how long health checks took, what machines use, and silences too short for a loss"
}

func ofName(name string) string {
	if name == "" {
		return ""
	}
	return " (" + name + ")"
}
