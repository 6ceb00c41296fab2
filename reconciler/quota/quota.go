package quota

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/schema"
)

// grant is a quota as it counts at a moment.
type grant struct {
	*schema.Quota
	origin schema.Position
	counts bool    // it has begun and has not ended
	asked  amounts // as it is declared
	backed amounts // of asked, what the cell has machines for; 0 unless it counts
	pool   amounts // what the quotas of its band, and those that share with it, are backed by
}

// String names g as messages do.
func (g *grant) String() string {
	if g.origin.Path == "" {
		return fmt.Sprintf("quota %q", g.Name)
	}
	return fmt.Sprintf("quota %q (%s)", g.Name, g.origin)
}

// missing is what g grants on paper only.
func (g *grant) missing() amounts {
	if !g.counts {
		return amounts{}
	}
	return g.asked.minus(g.backed)
}

// period says which part of the period of g does not hold now, "" if g counts.
func (g *grant) period(now time.Time) string {
	switch {
	case g.counts:
		return ""
	case now.Before(g.From):
		return "begins at " + g.From.Format(time.RFC3339)
	}
	return "ended at " + g.Until.Format(time.RFC3339)
}

// budget is what the quotas of one account come to.
type budget struct {
	grants  []*grant // by name, also those that do not count
	limit   amounts
	anyJobs bool // some quota that counts does not limit jobs
}

// counts reports whether any quota of b counts.
func (b *budget) counts() bool {
	return slices.ContainsFunc(b.grants, func(g *grant) bool { return g.counts })
}

// exceeded returns the dimensions in which used is more than b allows. A nil
// budget allows nothing.
func (b *budget) exceeded(used amounts) []int {
	if b == nil {
		return used.above(amounts{})
	}
	return slices.DeleteFunc(used.above(b.limit), func(d int) bool { return d == jobsDimension && b.anyJobs })
}

// budgetsOf returns what each account may use. The capacity of the cell backs quotas
// at monitoring and production together, monitoring first, and those at batch
// for themselves, as far as the cell lets batch be oversold; within a band it
// goes by name. Tasks and jobs are not bounded by machines.
func budgetsOf(in Input) map[account]*budget {
	out := map[account]*budget{}
	pools := map[schema.Band]*pool{}
	if in.Size != nil {
		prod := newPool(in.Size.Capacity, 100)
		pools[schema.BandMonitoring], pools[schema.BandProduction] = prod, prod
		if percent := in.Desired.Policy.OversellPercent.Batch; percent > 0 {
			pools[schema.BandBatch] = newPool(in.Size.Capacity, percent)
		}
	}
	for _, g := range grantsOf(in.Desired, in.Now) {
		k := account{g.User, g.Band}
		b := out[k]
		if b == nil {
			b = &budget{}
			out[k] = b
		}
		b.grants = append(b.grants, g)
		if !g.counts {
			continue
		}
		g.backed = g.asked
		if p := pools[g.Band]; p != nil {
			p.back(g)
		}
		b.limit = b.limit.plus(g.backed)
		b.anyJobs = b.anyJobs || g.Jobs == nil
	}
	return out
}

// grantsOf returns the quotas in the order in which they are backed.
func grantsOf(d intent.Desired, now time.Time) []*grant {
	out := make([]*grant, 0, len(d.Quotas))
	for i := range d.Quotas {
		q := &d.Quotas[i]
		g := &grant{Quota: q, origin: d.QuotaOrigins[q.Name], counts: !now.Before(q.From) && (q.Until.IsZero() || now.Before(q.Until))}
		for d, dim := range schema.Dimensions() {
			g.asked[d] = sumOf(q.Of(dim))
		}
		g.asked[tasksDimension] = sumOf(int64(q.Tasks))
		if q.Jobs != nil {
			g.asked[jobsDimension] = sumOf(int64(*q.Jobs))
		}
		out = append(out, g)
	}
	slices.SortStableFunc(out, func(x, y *grant) int {
		return cmp.Or(schema.CompareBool(x.Band != schema.BandMonitoring, y.Band != schema.BandMonitoring), strings.Compare(x.Name, y.Name))
	})
	return out
}

// pool is what backs quotas: all there is, and what is left of it.
type pool struct{ all, left amounts }

func newPool(capacity schema.Resources, percent int) *pool {
	p := &pool{}
	for d, dim := range schema.Dimensions() {
		p.all[d] = sumOf(capacity.Of(dim)).percent(percent)
	}
	p.left = p.all
	return p
}

// back gives g what is left of p, up to what it asks for.
func (p *pool) back(g *grant) {
	g.pool = p.all
	for d := range schema.Dimensions() {
		g.backed[d] = g.asked[d].least(p.left[d])
		p.left[d] = p.left[d].minus(g.backed[d])
	}
}

// nextChange returns when the next of the quotas begins or ends after now; zero
// if none does.
func nextChange(quotas []schema.Quota, now time.Time) time.Time {
	var next time.Time
	for i := range quotas {
		for _, t := range []time.Time{quotas[i].From, quotas[i].Until} {
			if t.After(now) && (next.IsZero() || t.Before(next)) {
				next = t
			}
		}
	}
	return next
}
