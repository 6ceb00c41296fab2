package web

import (
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
)

const (
	defaultList = 100 // items of a page
	maxList     = 1000
)

// page is a page of a list, as /v1/jobs, /v1/tasks and /v1/machines answer with it.
type page struct {
	Version uint64 `json:"version"` // of the status that it is of
	Total   int    `json:"total"`   // items in all pages
	Items   []any  `json:"items"`   // by name
	// Continue is what the next page is asked for with; "" if this is the last.
	Continue string `json:"continue"`
	// Replica is set by a master that does not lead.
	Replica *status.Replica `json:"replica,omitempty"`
}

// listing is a list of the cell, each of whose items has a name.
type listing[T any] struct {
	items func(*status.Snapshot) iter.Seq[*T]
	name  func(*T) string
	// filter reads the parameters of a request, and says which items pass.
	filter func(*query) func(*T) bool
	// changes are those of the list in a delta, and picks says whether a group has an
	// item, of the given job.
	changes func(*delta) []change[T]
	picks   func(status.Group, *status.JobStatus, *T) bool
	// watchable errs with what is wrong about watching the list for a group.
	watchable func(status.Group) error
}

// handler answers a request, or errs with what the answer is to say.
type handler = func(http.ResponseWriter, *http.Request) error

func always(status.Group) error { return nil }

// filters are the parameters of their own that lists have, by path.
var filters = map[string][]string{"/v1/jobs": {"waiting"}, "/v1/tasks": {"state"}, "/v1/machines": {"health"}, "/v1/endpoints": {"ready"}}

// lists are the handlers of all lists of a cell, by path.
func lists(x *watches) map[string]handler {
	return map[string]handler{
		"/v1/jobs": listing[status.JobStatus]{
			(*status.Snapshot).Jobs,
			func(j *status.JobStatus) string { return j.Name },
			func(q *query) func(*status.JobStatus) bool {
				waiting := q.flag("waiting")
				return func(j *status.JobStatus) bool { return !waiting || j.Reason != "" }
			},
			func(d *delta) []change[status.JobStatus] { return d.jobs },
			func(g status.Group, _, j *status.JobStatus) bool { return g.PicksJob(j) },
			func(g status.Group) error {
				if g.OfMachine() {
					return badRequest("watch /v1/tasks of the machine", "the jobs of a machine cannot be watched")
				}
				return nil
			},
		}.handler(x),
		"/v1/tasks": listing[status.TaskStatus]{
			(*status.Snapshot).Tasks,
			func(t *status.TaskStatus) string { return t.Name },
			func(q *query) func(*status.TaskStatus) bool {
				states := anyOf(q, "state", status.TaskStates())
				return func(t *status.TaskStatus) bool { return len(states) == 0 || slices.Contains(states, t.State) }
			},
			func(d *delta) []change[status.TaskStatus] { return d.tasks },
			status.Group.PicksTask, always,
		}.handler(x),
		"/v1/machines": listing[status.MachineStatus]{
			func(s *status.Snapshot) iter.Seq[*status.MachineStatus] { return slices.Values(s.Machines()) },
			func(m *status.MachineStatus) string { return m.Name },
			func(q *query) func(*status.MachineStatus) bool {
				words := anyOf(q, "health", []model.Health{model.HealthUp, model.HealthSilent, model.HealthLost})
				return func(m *status.MachineStatus) bool {
					return len(words) == 0 || slices.Contains(words, model.Health(m.Health))
				}
			},
			func(d *delta) []change[status.MachineStatus] { return d.machines },
			func(g status.Group, _ *status.JobStatus, m *status.MachineStatus) bool { return g.PicksMachine(m) },
			always,
		}.handler(x),
		"/v1/endpoints": listing[status.Endpoint]{
			(*status.Snapshot).Endpoints,
			func(e *status.Endpoint) string { return e.Name },
			func(q *query) func(*status.Endpoint) bool {
				ready := q.flag("ready")
				return func(e *status.Endpoint) bool { return !ready || e.Ready }
			},
			func(d *delta) []change[status.Endpoint] { return d.endpoints() },
			status.Group.PicksEndpoint, always,
		}.handler(x),
	}
}

// wanted is what a request wants of a list.
type wanted[T any] struct {
	listing[T]
	group  status.Group
	passes func(*T) bool
	fields []string // empty: all
}

// handler answers with a page of the list, or with what changes in it.
func (l listing[T]) handler(x *watches) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		q := &query{r.URL.Query(), nil}
		want := wanted[T]{l, status.Group{Name: q.Get("name"), Selector: q.selector()}, l.filter(q), anyOf(q, "fields", fieldsOf[T]())}
		limit, after, watch := q.number("limit", defaultList), q.Get("continue"), q.flag("watch")
		if limit < 1 || limit > maxList {
			q.fail("limit", "a number from 1 to "+strconv.Itoa(maxList))
		}
		if q.err != nil {
			return q.err
		}
		if watch {
			return want.watch(x, w, r)
		}
		cell, _, err := x.feed.look(r.Context())
		if err != nil {
			return stopped(err)
		}
		p, err := want.page(cell, limit, after)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/json")
		return writeJSON(w, p)
	}
}

// page returns the page of so many items from the one after a name on: so none is left out
// or listed twice when others come and go meanwhile.
func (l *wanted[T]) page(cell *status.Snapshot, limit int, after string) (*page, error) {
	part, err := l.group.Of(cell)
	if err != nil {
		return nil, notFound(err)
	}
	p := &page{Version: cell.Brief().Version, Items: []any{}, Replica: cell.Brief().Replica}
	last, begun := "", after == ""
	for x := range l.items(part) {
		if !l.passes(x) {
			continue
		}
		p.Total++
		begun = begun || model.CompareNames(l.name(x), after) > 0
		switch {
		case !begun: // on an earlier page
		case len(p.Items) < limit:
			item, err := l.some(x)
			if err != nil {
				return nil, err
			}
			p.Items, last = append(p.Items, item), l.name(x)
		default:
			p.Continue = last
		}
	}
	return p, nil
}

// fieldsOf returns the names that the fields of T have in JSON.
func fieldsOf[T any]() []string {
	var out []string
	for f := range reflect.TypeFor[T]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		out = append(out, name)
	}
	return out
}

// some returns an item with the fields that are wanted, as far as it has them.
func (l *wanted[T]) some(x *T) (any, error) {
	if len(l.fields) == 0 {
		return x, nil
	}
	whole, err := json.Marshal(x)
	if err != nil {
		return nil, fmt.Errorf("encode an item: %w", err)
	}
	var have map[string]json.RawMessage
	if err := json.Unmarshal(whole, &have); err != nil {
		return nil, fmt.Errorf("decode an item: %w", err)
	}
	some := map[string]json.RawMessage{}
	for _, f := range l.fields {
		if v, ok := have[f]; ok {
			some[f] = v
		}
	}
	return some, nil
}

// anyOf returns the words of a parameter with commas between them, each one of known.
func anyOf[T ~string](q *query, name string, known []T) []T {
	if q.Get(name) == "" {
		return nil
	}
	var out []T
	for word := range strings.SplitSeq(q.Get(name), ",") {
		if !slices.Contains(known, T(word)) {
			q.fail(name, fmt.Sprintf("one or more of %v with commas between them", known))
		}
		out = append(out, T(word))
	}
	return out
}
