package reconciler

import (
	"maps"
	"time"

	"github.com/musterhq/muster/schema"
)

// usageFor is how long a sample counts that no newer one has followed: several
// that did not come.
const usageFor = time.Minute

// sample is what a machine said last of what it uses.
type sample struct {
	at    time.Time // by the master's clock
	usage *schema.MachineUsage
}

// HearUsage takes a sample. Nothing is decided by it.
func (o *Observed) HearUsage(u *schema.MachineUsage, now time.Time) {
	o.usage[u.Machine] = sample{now, u}
}

// samples returns what machines have said of what they use, as far as it counts at
// now, by name.
func (o *Observed) samples(now time.Time) map[string]sample {
	out := maps.Clone(o.usage)
	maps.DeleteFunc(out, func(_ string, s sample) bool { return now.Sub(s.at) > usageFor })
	return out
}
