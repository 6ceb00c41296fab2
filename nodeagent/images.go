package nodeagent

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
)

// An image is brought to the machine before anything is started or stopped for it: what
// runs goes on while the next version's image comes.

// The time from a failure to bring an image to the next attempt: doubled with each failure
// in a row.
const (
	imageDelay    = time.Second
	imageMaxDelay = 5 * time.Minute
)

// ImageState says how an image stands on this machine that tasks need.
type ImageState struct {
	Ready bool
	// Failed says why the last attempt to bring it has failed, "" after none.
	Failed string
	// coming says that it is being brought; failures counts those in a row, and next is
	// when it is tried again.
	coming   bool
	failures int
	next     time.Time
}

// imageMissing says what a task waits for whose image is not here, "" for nothing.
func (d *decider) imageMissing(it item) string { return d.missing(it.job().Task.Image()) }

// missing says of an image that it is not here, and why; "" if it is, or there is none.
func (d *decider) missing(name string) string {
	if name == "" {
		return ""
	}
	switch s := d.in.Images[name]; {
	case s.Ready:
		return ""
	case s.Failed != "":
		return fmt.Sprintf("its image cannot be pulled, and is tried again: %s", s.Failed)
	}
	return "its image is being pulled: " + name
}

// reportBrought says how the image stands that a task is to have next.
func (d *decider) reportBrought(it item, s *schema.TaskStatus) {
	if it.assigned == nil || it.assigned.Bring == "" {
		return
	}
	if why := d.missing(it.assigned.Bring); why != "" {
		s.Note = joined(s.Note, schema.NoteNext+why)
		return
	}
	s.Brought = it.assigned.Bring
}

// imagesNeeded returns the images of what this machine shall run or runs, sorted: they
// must stay.
func (a *Agent) imagesNeeded() []string {
	need := map[string]bool{}
	if a.view != nil {
		for i := range a.view.Assignments {
			x := &a.view.Assignments[i]
			if image := x.Job.Task.Image(); image != "" && x.Stop == nil {
				need[image] = true
			}
			if x.Bring != "" {
				need[x.Bring] = true
			}
		}
	}
	for _, g := range a.tasks {
		if j := g.Assignment.Job; j != nil && j.Task.Image() != "" && g.Alive() {
			need[j.Task.Image()] = true
		}
	}
	return slices.Sorted(maps.Keys(need))
}

// needImages says which images must be here, and which are to be brought now.
func (a *Agent) needImages(t *Turn, now time.Time) {
	t.Images = a.imagesNeeded()
	maps.DeleteFunc(a.images, func(name string, s ImageState) bool {
		_, needed := slices.BinarySearch(t.Images, name)
		return !needed && !s.coming
	})
	for _, name := range t.Images {
		s := a.images[name]
		switch {
		case s.Ready || s.coming:
		case s.next.After(now):
			a.wakeBy(s.next)
		default:
			s.coming = true
			t.Bring = append(t.Bring, name)
			a.images[name] = s
		}
	}
}

// Brought takes what has come of bringing an image: err says why it is not here, and after
// when whoever was asked for it wants to be asked again, zero if that was not said.
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
