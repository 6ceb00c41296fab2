package model

import "github.com/musterhq/muster/schema"

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
	o.news++
	names := make([]string, len(is))
	for i, d := range is {
		names[i] = string(d)
	}
	o.contents[machine] = content{is, names, o.news}
	o.changed.Add(machine, len(o.machines))
}

// Content returns the digests of the images and packages that a machine holds, sorted, and a
// number that is another after each change. It is not to be written to.
func (o *Observed) Content(machine string) (digests []string, number uint64) {
	c := o.contents[machine]
	return c.names, c.number
}
