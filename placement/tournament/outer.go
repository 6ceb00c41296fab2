package tournament

// Outer is the domains that domains lie in, such as the zones of racks, and what is wanted in
// each.
type Outer struct {
	Of    []int32 // outer domain, by domain
	Tally *Tally  // of the job, by outer domain
	// Wanted is how many tasks of the job are wanted in each outer domain, NoTarget where
	// nothing is said of one; nil for as many in each.
	Wanted []int32
}

// NoTarget in Outer.Wanted is a domain that comes after all of which is said what is wanted.
const NoTarget = int32(-1)

const (
	// full is the load of a domain that has what is wanted.
	full = 1 << 20
	// most is the load of one of which nothing is said, and that has none.
	most = 1 << 30
)

func (o *Outer) at(domain int32) int32 {
	outer := o.Of[domain]
	return o.Load(outer, o.Tally.Stay[outer])
}

// Load returns how much of what is wanted in an outer domain is there when it has so many
// tasks: the domains with the least get the next ones. It never falls as tasks come.
func (o *Outer) Load(outer, tasks int32) int32 {
	if o.Wanted == nil {
		return tasks
	}
	switch want := o.Wanted[outer]; want {
	case NoTarget:
		return most + tasks
	case 0:
		return int32(min((int64(tasks)+1)*full, most))
	default:
		return int32(min(int64(tasks)*full/int64(want), most))
	}
}

// Behind reports whether an outer domain lacks tasks of those that are wanted there.
func (o *Outer) Behind(outer int32) bool {
	return o.Wanted != nil && o.Tally.Stay[outer] < o.Wanted[outer]
}
