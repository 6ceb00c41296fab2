package policy

import (
	"cmp"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/musterhq/muster/nodeagent/naming"
	"github.com/musterhq/muster/schema"
)

// Follower keeps a State as snapshots and claims come, in time that goes with the claims and with what has changed of
// the directory. The zero Follower has nothing. It belongs to one goroutine at a time.
type Follower struct {
	is      State
	known   *naming.Snapshot               // of which the groups are; nil: of none
	more    map[string]map[netip.Addr]int  // by group, how many tasks more than one have an address
	changed map[string]map[netip.Addr]bool // in this Next, by group, what is added, and, false, removed
	number  uint64                         // of the State
}

// Next returns the State for a newer snapshot and all claims, and what leads to it from the one before, whose groups it
// may write to: that is no longer valid.
func (f *Follower) Next(now *naming.Snapshot, claims []Claim) (State, Change) {
	want, before := guarding(now, claims), f.is
	c := betweenGuards(before, want)
	f.changed = map[string]map[netip.Addr]bool{}
	moved := f.known == nil || subnetsMoved(f.known, now)
	anew := map[naming.Name]*schema.Policy{}
	for job, p := range want.policies {
		stays := !moved && before.policies[job] != nil && reflect.DeepEqual(before.policies[job], p)
		if !stays {
			anew[job] = p
		}
		for _, port := range groupsOf(p) {
			name := GroupOf(job, port)
			if stays {
				want.Groups[name] = before.Groups[name]
				continue
			}
			want.Groups[name] = Group{map[netip.Addr]struct{}{}, p.At(port).Ranges()}
			delete(f.more, name)
		}
	}
	f.is = want
	if len(anew) < len(want.policies) {
		f.since(now, anew)
	}
	if len(anew) > 0 {
		for job := range now.Jobs() {
			f.admit(nil, job, now, anew)
		}
	}
	for name := range f.more {
		if _, ok := want.Groups[name]; !ok {
			delete(f.more, name)
		}
	}
	f.known = now
	c.From = f.number
	f.number++
	c.To = f.number
	f.betweenGroups(&c, before, anew)
	return want, c
}

// subnetsMoved reports whether a machine has other subnets: then addresses count that did not, or do no more.
func subnetsMoved(before, now *naming.Snapshot) bool {
	for was, is := range now.MachinesSince(before) {
		var a, b []netip.Prefix
		if was != nil {
			a = slices.Concat(was.Subnets, was.Leaving)
		}
		if is != nil {
			b = slices.Concat(is.Subnets, is.Leaving)
		}
		if !slices.Equal(a, b) {
			return true
		}
	}
	return false
}

// since takes in what has changed of jobs into groups that stay: all but those of some jobs.
func (f *Follower) since(now *naming.Snapshot, but map[naming.Name]*schema.Policy) {
	stay := maps.Clone(f.is.policies)
	maps.DeleteFunc(stay, func(job naming.Name, _ *schema.Policy) bool { return but[job] != nil })
	for was, is := range now.JobsSince(f.known) {
		f.admit(was, is, now, stay)
	}
}

// admit replaces, in the groups of some jobs, the addresses of a job as it was by those as it is. Each may be nil.
func (f *Follower) admit(was, is *naming.Job, now *naming.Snapshot, to map[naming.Name]*schema.Policy) {
	for job, p := range to {
		for _, port := range groupsOf(p) {
			at, name := p.At(port), GroupOf(job, port)
			if is != nil && at.Admits(job.User, is.User, is.Labels) {
				f.each(name, is, now, 1)
			}
			if was != nil && at.Admits(job.User, was.User, was.Labels) {
				f.each(name, was, f.known, -1)
			}
		}
	}
}

// each counts the addresses of a job's tasks in a group up or down.
func (f *Follower) each(group string, job *naming.Job, by *naming.Snapshot, n int) {
	for t := range job.Tasks() {
		for a := range own(by, t) {
			f.count(group, a, n)
		}
	}
}

// count counts an address in a group up or down.
func (f *Follower) count(group string, a netip.Addr, n int) {
	sources := f.is.Groups[group].Sources
	total := n
	if _, there := sources[a]; there {
		total += 1 + f.more[group][a]
	}
	if total > 1 {
		if f.more == nil {
			f.more = map[string]map[netip.Addr]int{}
		}
		if f.more[group] == nil {
			f.more[group] = map[netip.Addr]int{}
		}
		f.more[group][a] = total - 1
	} else {
		delete(f.more[group], a)
	}
	_, was := sources[a]
	switch is := total > 0; {
	case is == was:
		return
	case is:
		sources[a] = struct{}{}
	default:
		delete(sources, a)
	}
	changed := f.changed[group]
	if changed == nil {
		changed = map[netip.Addr]bool{}
		f.changed[group] = changed
	}
	if _, again := changed[a]; again { // it is as it was
		delete(changed, a)
	} else {
		changed[a] = total > 0
	}
}

// betweenGroups adds to a change what leads from the groups before to those that are; those of some jobs were made anew.
func (f *Follower) betweenGroups(c *Change, before State, anew map[naming.Name]*schema.Policy) {
	fresh := map[string]bool{}
	for job, p := range anew {
		for _, port := range groupsOf(p) {
			fresh[GroupOf(job, port)] = true
		}
	}
	for name := range before.Groups {
		if _, stays := f.is.Groups[name]; !stays {
			c.RemoveGroups = append(c.RemoveGroups, name)
		}
	}
	slices.Sort(c.RemoveGroups)
	for _, name := range slices.Sorted(maps.Keys(f.is.Groups)) {
		is := f.is.Groups[name]
		if fresh[name] {
			c.group(name, before.Groups, is)
			continue
		}
		for _, a := range slices.SortedFunc(maps.Keys(f.changed[name]), netip.Addr.Compare) {
			if f.changed[name][a] {
				c.AddSources = append(c.AddSources, Source{name, a})
			} else {
				c.RemoveSources = append(c.RemoveSources, Source{name, a})
			}
		}
	}
	slices.SortStableFunc(c.RemoveSources, func(a, b Source) int { return cmp.Compare(a.Group, b.Group) })
}
