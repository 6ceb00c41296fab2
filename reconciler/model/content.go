package model

import (
	"slices"

	"github.com/musterhq/muster/schema"
)

// content is what a machine holds of images and packages.
type content struct {
	digests []schema.Digest // sorted
	names   []string        // the same, as placement has them
	number  uint64          // another after each change
}

// ChangeContent takes what has changed of what a machine holds. There is nothing to decide:
// tasks that are placed later see it.
func (o *Observed) ChangeContent(machine string, c *schema.ContentChange) {
	was := o.contents[machine]
	is, ok := c.Apply(was.digests)
	if !ok { // no session lets so many pass
		return
	}
	o.setHolders(machine, was.digests, is)
	o.news++
	names := make([]string, len(is))
	for i, d := range is {
		names[i] = string(d)
	}
	o.contents[machine] = content{is, names, o.news}
	o.changed.Add(machine, len(o.machines))
}

// forgetContent forgets what a machine holds.
func (o *Observed) forgetContent(machine string) {
	o.setHolders(machine, o.contents[machine].digests, nil)
	delete(o.contents, machine)
}

// setHolders takes over in holders what has changed of a machine.
func (o *Observed) setHolders(machine string, was, is []schema.Digest) {
	change := schema.ChangeOfContent(was, is)
	for _, d := range change.Added {
		o.holders[d] = append(o.holders[d], machine)
	}
	for _, d := range change.Removed {
		left := o.holders[d]
		if i := slices.Index(left, machine); i >= 0 {
			left[i] = left[len(left)-1]
			left = left[:len(left)-1]
		}
		if o.holders[d] = left; len(left) == 0 {
			delete(o.holders, d)
		}
	}
}

// Holders returns the machines that hold an image or a package, in no order. It is not to be
// written to, and changes with the next report. A Snapshot has none.
func (o *Observed) Holders(d schema.Digest) []string { return o.holders[d] }

// Content returns the digests of the images and packages that a machine holds, sorted, and a
// number that is another after each change. It is not to be written to.
func (o *Observed) Content(machine string) (digests []string, number uint64) {
	c := o.contents[machine]
	return c.names, c.number
}
