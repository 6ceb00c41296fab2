package naming

import (
	"iter"
	"slices"
	"sort"

	"github.com/musterhq/muster/schema"
)

// Job is the tasks of a job that have a machine. It never changes.
type Job struct {
	Name
	Labels map[string]string
	Policy *schema.Policy // who may connect to its tasks; nil if it does not say

	self  *Name  // the same in all versions of the job, for those who refer to it
	parts []part // by Part, none empty
	ready []int  // how many tasks are ready in a part and those before it
	size  int
	// addressed is how many tasks have an address.
	addressed int
}

// part is an entry of a job.
type part struct {
	*schema.DirectoryTasks
	ready, addressed int // how many of its tasks are
}

// Len returns how many tasks there are.
func (j *Job) Len() int { return j.size }

// Ready returns how many tasks are ready, and have an address.
func (j *Job) Ready() int {
	if len(j.ready) == 0 {
		return 0
	}
	return j.ready[len(j.ready)-1]
}

// Task returns the task with an index.
func (j *Job) Task(index int) (*schema.DirectoryTask, bool) {
	if index < 0 {
		return nil, false
	}
	at, ok := slices.BinarySearchFunc(j.parts, index/schema.DirectoryPart,
		func(p part, number int) int { return p.Part - number })
	if !ok {
		return nil, false
	}
	tasks := j.parts[at].Tasks
	at, ok = slices.BinarySearchFunc(tasks, index, func(t schema.DirectoryTask, index int) int { return t.Index - index })
	if !ok {
		return nil, false
	}
	return &tasks[at], true
}

// Tasks returns all tasks, by index.
func (j *Job) Tasks() iter.Seq[*schema.DirectoryTask] {
	return func(yield func(*schema.DirectoryTask) bool) {
		for _, p := range j.parts {
			for i := range p.Tasks {
				if !yield(&p.Tasks[i]) {
					return
				}
			}
		}
	}
}

// ReadyFrom returns the tasks that Ready counts, by index, without the first skip of them. It
// finds the first without a look at those before its part.
func (j *Job) ReadyFrom(skip int) iter.Seq[*schema.DirectoryTask] {
	return func(yield func(*schema.DirectoryTask) bool) {
		at := sort.SearchInts(j.ready, skip+1)
		if at > 0 {
			skip -= j.ready[at-1]
		}
		for ; at < len(j.parts); at++ {
			tasks := j.parts[at].Tasks
			for i := range tasks {
				switch {
				case !tasks[i].Ready || !tasks[i].Address.IsValid():
				case skip > 0:
					skip--
				case !yield(&tasks[i]):
					return
				}
			}
		}
	}
}

// with returns the job with p in place of the part with its number; without that part if p has no
// tasks. It is nil if no part is left.
func (j *Job) with(name Name, p *schema.DirectoryTasks) *Job {
	is := &Job{Name: name, self: &name}
	var parts []part
	if j != nil {
		is.self, parts = j.self, j.parts
	}
	at, found := slices.BinarySearchFunc(parts, p.Part, func(p part, number int) int { return p.Part - number })
	is.parts = make([]part, 0, len(parts)+1)
	is.parts = append(is.parts, parts[:at]...)
	if len(p.Tasks) > 0 {
		is.parts = append(is.parts, partOf(p))
	}
	if found {
		at++
	}
	is.parts = append(is.parts, parts[at:]...)
	if len(is.parts) == 0 {
		return nil
	}
	is.Labels, is.Policy = is.parts[0].Labels, is.parts[0].PolicyOfJob()
	is.ready = make([]int, len(is.parts))
	ready := 0
	for i, p := range is.parts {
		is.size += len(p.Tasks)
		is.addressed += p.addressed
		ready += p.ready
		is.ready[i] = ready
	}
	return is
}

func partOf(tasks *schema.DirectoryTasks) part {
	p := part{DirectoryTasks: tasks}
	for i := range tasks.Tasks {
		if t := &tasks.Tasks[i]; t.Address.IsValid() {
			p.addressed++
			if t.Ready {
				p.ready++
			}
		}
	}
	return p
}

// addressedFrom returns the tasks with an address, ready or not, without the first skip of them.
func (j *Job) addressedFrom(skip int) iter.Seq[*schema.DirectoryTask] {
	return func(yield func(*schema.DirectoryTask) bool) {
		for t := range j.Tasks() {
			switch {
			case !t.Address.IsValid():
			case skip > 0:
				skip--
			case !yield(t):
				return
			}
		}
	}
}
