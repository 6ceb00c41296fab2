package status

import "github.com/musterhq/muster/schema"

// Converged is what Describe says, found out with less work: it ends at the first thing
// that waits. If that is a job, it is returned, and looked at first when it is given
// again: it is likely to wait still.
func Converged(in DescribeInput, first schema.JobName) (yes bool, waits schema.JobName) {
	if in.State.Jobs[first] != nil {
		d := newDescriber(in)
		d.brief = true
		if d.job(first); d.waits() {
			return false, first
		}
	}
	d := newDescriber(in)
	d.brief = true
	if d.repository(); d.waits() {
		return false, schema.JobName{}
	}
	for _, name := range in.State.JobNames() {
		if d.job(name); d.waits() {
			return false, name
		}
	}
	d.suspended()
	d.machines()
	return !d.waits(), schema.JobName{}
}
