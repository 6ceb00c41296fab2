package quota

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// Account is what one user has admitted at one band, beside what is granted. Field names are
// stable.
type Account struct {
	User string      `json:"user"`
	Band schema.Band `json:"band"`
	Used Amounts     `json:"used"`
	// Limit is what its quotas come to now, as far as they are backed; nil where none is
	// needed, or there is none.
	Limit *Amounts `json:"limit,omitempty"`
}

// Amounts are in the units of schema.Resources; what is more than an int64 holds is the most
// that one does.
type Amounts struct {
	schema.Resources
	Tasks int64 `json:"tasks"`
}

// Accounts returns what is admitted by user and band, sorted: counted as Admit counts it.
func Accounts(in Input) []Account {
	in = in.counted()
	used := map[account]amounts{}
	for _, j := range in.Admitted {
		used[accountOf(j)] = used[accountOf(j)].plus(askOf(j))
	}
	budgets := budgetsOf(in)
	for k := range budgets {
		used[k] = used[k].plus(amounts{}) // also if nothing of it is used
	}
	out := make([]Account, 0, len(used))
	for k, u := range used {
		a := Account{User: k.user, Band: k.band, Used: amountsOf(u)}
		if b := budgets[k]; b != nil && !in.free() {
			limit := amountsOf(b.limit)
			a.Limit = &limit
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b Account) int {
		return cmp.Or(strings.Compare(a.User, b.User), strings.Compare(string(a.Band), string(b.Band)))
	})
	return out
}

func amountsOf(m amounts) Amounts {
	n := func(s sum) int64 {
		if s.over(sumOf(math.MaxInt64)) {
			return math.MaxInt64
		}
		return int64(s.lo) //nolint:gosec // it is no more than that
	}
	var out Amounts
	out.CPUMilli, out.RAMBytes, out.DiskBytes = n(m[0]), n(m[1]), n(m[2])
	out.Tasks = n(m[tasksDimension])
	return out
}
