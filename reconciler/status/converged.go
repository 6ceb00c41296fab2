package status

import "github.com/musterhq/muster/schema"

// Converged is what Describe says, found out with less work: it ends at the first thing
// that waits. If that is a job, it is returned, and checked first when it is given
// again: it is likely to wait still.
func Converged(in DescribeInput, first schema.JobName) (yes bool, waits schema.JobName) {
	d := newDescriber(in, &Describer{})
	d.brief = true
	if in.State.Jobs[first] != nil && d.describe(first).waits != "" {
		return false, first
	}
	if d.repository(); len(d.status.waitingFor(nil, nil)) > 0 {
		return false, schema.JobName{}
	}
	for _, name := range in.State.JobNames() {
		p := d.describe(name)
		if p.waits != "" {
			return false, name
		}
		d.described.replace(name, p)
		d.add(p)
	}
	d.suspended()
	d.machines()
	return len(d.status.waitingFor(nil, nil)) == 0, schema.JobName{}
}
