package status

import "github.com/musterhq/muster/schema"

// Converged is what Describe says, found out with less work: it ends at the first thing
// that waits. If that is a job, it is returned, and checked first when it is given
// again: it is likely to wait still. Jobs that were as desired are described again only if
// something has changed for them. A Describer that was asked this is not asked to Describe,
// unless it is shared.
func (k *Describer) Converged(in DescribeInput, first schema.JobName) (yes bool, waits schema.JobName) {
	d := newDescriber(in, k)
	d.brief = true
	d.repository()
	for name := range d.touched() {
		k.replace(name, nil)
	}
	if in.State.Jobs[first] != nil && d.briefly(first).waits != "" {
		return false, first
	}
	if len(d.status.waitingFor(nil, nil)) > 0 {
		return false, schema.JobName{}
	}
	k.forget(in.State)
	d.room(len(k.names))
	for _, name := range k.names {
		p := d.briefly(name)
		if p.waits != "" {
			return false, name
		}
		d.add(p)
	}
	d.suspended()
	d.machines()
	return len(d.status.waitingFor(nil, nil)) == 0, schema.JobName{}
}
