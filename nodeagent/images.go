package nodeagent

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// Images and packages are brought to the machine before anything is started or stopped for
// them: what runs goes on while those of the next version come.

// The time from a failure to bring one to the next attempt: doubled with each failure in a
// row.
const (
	imageDelay    = time.Second
	imageMaxDelay = 5 * time.Minute
)

// ImageState says how an image or a package stands on this machine that tasks need.
type ImageState struct {
	Ready bool
	// Failed says why the last attempt to bring it has failed, "" after none.
	Failed string
	// coming says that it is being brought; failures counts those in a row, and next is
	// when it is tried again.
	coming   bool
	failures int
	next     time.Time
	from     Sources // of the last attempt
}

// unbrought says what a task waits for whose image or packages are not here, "" for nothing.
func (d *decider) unbrought(it item) string { return d.missing(it.job().Task.Brings()) }

// missing says of what is to be brought that it is not here, and why; "" if all is. What has
// failed comes first.
func (d *decider) missing(names []string) string {
	coming := ""
	for _, name := range names {
		what, does := "image", "pulled"
		if _, _, ok := schema.SplitSource(name); ok {
			what, does = "package", "fetched"
		}
		switch s := d.in.Images[name]; {
		case s.Ready:
		case s.Failed != "":
			return fmt.Sprintf("its %s cannot be %s, and is tried again: %s", what, does, s.Failed)
		case coming == "":
			coming = fmt.Sprintf("its %s is being %s: %s", what, does, name)
		}
	}
	return coming
}

// reportBrought says how that stands that a task is to have next.
func (d *decider) reportBrought(it item, s *schema.TaskStatus) {
	if it.assigned == nil || len(it.assigned.Bring) == 0 {
		return
	}
	if why := d.missing(it.assigned.Bring); why != "" {
		s.Note = joined(s.Note, schema.NoteNext+why)
		return
	}
	s.Brought = it.assigned.Bring
}

// imagesNeeded returns the images and packages of what this machine shall run or runs, sorted:
// they must stay.
func (a *Agent) imagesNeeded() []string {
	need := map[string]bool{}
	add := func(names []string) {
		for _, name := range names {
			need[name] = true
		}
	}
	if a.view != nil {
		for i := range a.view.Assignments {
			x := &a.view.Assignments[i]
			if x.Stop == nil {
				add(x.Job.Task.Brings())
			}
			add(x.Bring)
		}
	}
	for _, g := range a.tasks {
		if j := g.Assignment.Job; j != nil && g.Alive() {
			add(j.Task.Brings())
		}
	}
	return slices.Sorted(maps.Keys(need))
}

// needImages says what must be here, and what is to be brought now.
func (a *Agent) needImages(t *Turn, now time.Time) {
	t.Images = a.imagesNeeded()
	maps.DeleteFunc(a.images, func(name string, s ImageState) bool {
		_, needed := slices.BinarySearch(t.Images, name)
		return !needed && !s.coming
	})
	for _, name := range t.Images {
		s := a.images[name]
		if s.Ready || s.coming {
			continue
		}
		from := sources(a.view, name)
		if s.next.After(now) && slices.EqualFunc(from, s.from, Source.equal) { // another login may let us in now
			a.wakeBy(s.next)
			continue
		}
		s.coming, s.from = true, from
		t.Bring = append(t.Bring, name)
		if len(from) > 0 {
			if t.From == nil {
				t.From = map[string]Sources{}
			}
			t.From[name] = from
		}
		a.images[name] = s
	}
}

// Brought takes what has come of bringing an image or a package: err says why it is not here,
// and after when whoever was asked for it wants to be asked again, zero if that was not said.
func (a *Agent) Brought(name string, err error, after, now time.Time) {
	s := a.images[name]
	if s.coming = false; err == nil {
		a.images[name] = ImageState{Ready: true}
		return
	}
	delay := min(imageDelay<<min(s.failures, 16), imageMaxDelay)
	s.Failed, s.failures, s.next = err.Error(), s.failures+1, now.Add(delay)
	if after.After(s.next) {
		s.next = earlier(after, now.Add(imageMaxDelay))
	}
	a.images[name] = s
}
