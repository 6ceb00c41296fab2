package model

import (
	"maps"
	"time"

	"github.com/musterhq/muster/schema"
)

// usageFor is how long a sample counts that no newer one has followed: several
// that did not come.
const usageFor = time.Minute

// Sample is what a machine said last of what it uses.
type Sample struct {
	At    time.Time // by the master's clock
	Usage *schema.MachineUsage
}

// AddUsage takes a sample. Nothing is decided by it.
func (o *Observed) AddUsage(u *schema.MachineUsage, now time.Time) {
	o.usage[u.Machine] = Sample{now, u}
}

// Samples returns what machines have said of what they use, as far as it counts at
// now, by name.
func (o *Observed) Samples(now time.Time) map[string]Sample {
	out := maps.Clone(o.usage)
	maps.DeleteFunc(out, func(_ string, s Sample) bool { return now.Sub(s.At) > usageFor })
	return out
}
