package naming

import (
	"maps"
	"slices"

	"github.com/musterhq/muster/schema"
)

// labelled is a label of a user's jobs: a key with a value, a key with any value, or, without
// a key, any labels at all.
type labelled struct {
	user, key, value string
	any              bool
}

// picker finds which services pick which jobs, by an index on both sides: neither a new service
// looks at all jobs, nor a new job at all services.
type picker struct {
	jobs     map[Name]*picked
	services map[Name]*picking
	// byLabel has each job under all its labels.
	byLabel map[labelled]map[*picked]struct{}
	// byNeed has each service under one of the labels that a job needs for it.
	byNeed map[labelled]map[*picking]struct{}
	// changed are services whose list of jobs has to be made again.
	changed map[*picking]struct{}
}

// picked is a job.
type picked struct {
	name   Name
	labels map[string]string
	by     map[*picking]struct{}
}

// picking is a service.
type picking struct {
	name     Name
	selector schema.Selector
	valid    bool // whether the selector could be parsed; else it picks nothing
	weights  []weighing
	jobs     map[*picked]int // and the weight of their tasks
	needs    []labelled      // where byNeed has it
}

type weighing struct {
	selector schema.Selector
	weight   int
}

func newPicker() *picker {
	return &picker{
		jobs: map[Name]*picked{}, services: map[Name]*picking{},
		byLabel: map[labelled]map[*picked]struct{}{}, byNeed: map[labelled]map[*picking]struct{}{},
		changed: map[*picking]struct{}{},
	}
}

// setJob takes in a job's labels; nil of a job that is no more.
func (p *picker) setJob(n Name, labels map[string]string, there bool) {
	j := p.jobs[n]
	if j != nil {
		if there && maps.Equal(j.labels, labels) {
			return
		}
		for _, l := range labelsOf(n.User, j.labels) {
			drop(p.byLabel, l, j)
		}
		for s := range j.by {
			delete(s.jobs, j)
			p.changed[s] = struct{}{}
		}
		delete(p.jobs, n)
	}
	if !there {
		return
	}
	j = &picked{name: n, labels: labels, by: map[*picking]struct{}{}}
	p.jobs[n] = j
	for _, l := range labelsOf(n.User, labels) {
		enter(p.byLabel, l, j)
		for s := range p.byNeed[l] {
			p.pick(s, j)
		}
	}
}

// setService takes in a service; nil of one that is no more.
func (p *picker) setService(n Name, spec *schema.DirectoryService) {
	if s := p.services[n]; s != nil {
		for _, l := range s.needs {
			drop(p.byNeed, l, s)
		}
		for j := range s.jobs {
			delete(j.by, s)
		}
		delete(p.services, n)
		delete(p.changed, s)
	}
	if spec == nil {
		return
	}
	s := &picking{name: n, jobs: map[*picked]int{}}
	p.services[n] = s
	p.changed[s] = struct{}{}
	var err error
	if s.selector, err = schema.ParseSelector(spec.Selector); err != nil {
		return
	}
	s.valid = true
	for _, w := range spec.Weights {
		if selector, err := schema.ParseSelector(w.Selector); err == nil {
			s.weights = append(s.weights, weighing{selector, min(max(w.Weight, 0), schema.MaxWeight)})
		}
	}
	s.needs = fewest(p.byNeed, n.User, s.selector)
	for _, l := range s.needs {
		enter(p.byNeed, l, s)
	}
	for _, l := range fewest(p.byLabel, n.User, s.selector) {
		for j := range p.byLabel[l] {
			p.pick(s, j)
		}
	}
}

// pick makes j one of the jobs of s, if s picks it.
func (p *picker) pick(s *picking, j *picked) {
	if !s.valid || !s.selector.Matches(j.labels) {
		return
	}
	weight := schema.DefaultWeight
	if i := slices.IndexFunc(s.weights, func(w weighing) bool { return w.selector.Matches(j.labels) }); i >= 0 {
		weight = s.weights[i].weight
	}
	s.jobs[j] = weight
	j.by[s] = struct{}{}
	p.changed[s] = struct{}{}
}

// picksOf returns the jobs of a service, by name.
func (s *picking) picksOf() []pick {
	out := make([]pick, 0, len(s.jobs))
	for j, weight := range s.jobs {
		out = append(out, pick{j.name, weight})
	}
	slices.SortFunc(out, func(a, b pick) int { return a.job.Compare(b.job) })
	return out
}

// labelsOf returns under what a job is indexed.
func labelsOf(user string, labels map[string]string) []labelled {
	out := make([]labelled, 0, 2*len(labels)+1)
	out = append(out, labelled{user: user, any: true})
	for k, v := range labels {
		out = append(out, labelled{user: user, key: k, value: v}, labelled{user: user, key: k, any: true})
	}
	return out
}

// fewest returns the labels of which a job has one if a selector picks it, such that the fewest
// are under them in an index.
func fewest[T comparable](index map[labelled]map[T]struct{}, user string, s schema.Selector) []labelled {
	best := []labelled{{user: user, any: true}}
	least := len(index[best[0]])
	found := false
	for key, values := range s.Wanted() {
		ls := make([]labelled, 0, len(values)+1)
		if values == nil {
			ls = append(ls, labelled{user: user, key: key, any: true})
		}
		n := 0
		for _, v := range values {
			l := labelled{user: user, key: key, value: v}
			if !slices.Contains(ls, l) {
				ls = append(ls, l)
			}
		}
		for _, l := range ls {
			n += len(index[l])
		}
		if !found || n < least {
			best, least, found = ls, n, true
		}
	}
	return best
}

func enter[T comparable](index map[labelled]map[T]struct{}, l labelled, v T) {
	if index[l] == nil {
		index[l] = map[T]struct{}{}
	}
	index[l][v] = struct{}{}
}

func drop[T comparable](index map[labelled]map[T]struct{}, l labelled, v T) {
	delete(index[l], v)
	if len(index[l]) == 0 {
		delete(index, l)
	}
}
