package web

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
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
}

// listing is a list of the status. Its filter reads the parameters of a request, and
// says which items pass.
type listing[T any] struct {
	items  func(*status.Status) []T
	name   func(*T) string
	filter func(*query) func(*T) bool
}

// handler answers a request, or errs with what the answer is to say.
type handler = func(http.ResponseWriter, *http.Request) error

// describe returns the cell, as Cell.Status does.
type describe = func(context.Context) (*status.Status, <-chan struct{}, error)

// lists are the handlers of all lists of a cell, by path.
func lists(cell describe) map[string]handler {
	return map[string]handler{
		"/v1/jobs": listing[status.JobStatus]{
			func(s *status.Status) []status.JobStatus { return s.Jobs },
			func(j *status.JobStatus) string { return j.Name },
			func(q *query) func(*status.JobStatus) bool {
				waiting := q.flag("waiting")
				return func(j *status.JobStatus) bool { return !waiting || j.Reason != "" }
			},
		}.handler(cell),
		"/v1/tasks": listing[status.TaskStatus]{
			func(s *status.Status) []status.TaskStatus { return s.Tasks },
			func(t *status.TaskStatus) string { return t.Name },
			func(q *query) func(*status.TaskStatus) bool {
				states := anyOf(q, "state", status.TaskStates())
				return func(t *status.TaskStatus) bool { return len(states) == 0 || slices.Contains(states, t.State) }
			},
		}.handler(cell),
		"/v1/machines": listing[status.MachineStatus]{
			func(s *status.Status) []status.MachineStatus { return s.Machines },
			func(m *status.MachineStatus) string { return m.Name },
			func(q *query) func(*status.MachineStatus) bool {
				words := anyOf(q, "health", []model.Health{model.HealthUp, model.HealthSilent, model.HealthLost})
				return func(m *status.MachineStatus) bool {
					return len(words) == 0 || slices.Contains(words, model.Health(m.Health))
				}
			},
		}.handler(cell),
	}
}

// handler answers with a page of what name, selector and the filter pick, from the item
// after continue on: so none is left out or told twice when others come and go meanwhile.
func (l listing[T]) handler(describe describe) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		q := &query{r.URL.Query(), nil}
		group := status.Group{Name: q.Get("name"), Selector: q.selector()}
		limit, after, passes, fields := q.number("limit", defaultList), q.Get("continue"), l.filter(q), anyOf(q, "fields", fieldsOf[T]())
		if limit < 1 || limit > maxList {
			q.fail("limit", "a number from 1 to "+strconv.Itoa(maxList))
		}
		if q.err != nil {
			return q.err
		}
		cell, _, err := describe(r.Context())
		if err != nil {
			return stopped(err)
		}
		if cell, err = group.Of(cell); err != nil {
			return notFound(err)
		}
		p := page{Version: cell.Version, Items: []any{}}
		last, items := "", l.items(cell)
		for i := range items {
			x := &items[i]
			if !passes(x) {
				continue
			}
			p.Total++
			switch {
			case after != "" && compareNames(l.name(x), after) <= 0: // on an earlier page
			case len(p.Items) < limit:
				p.Items, last = append(p.Items, x), l.name(x)
			default:
				p.Continue = last
			}
		}
		if len(fields) > 0 {
			if err := p.only(fields); err != nil {
				return err
			}
		}
		w.Header().Set("Content-Type", "application/json")
		return writeJSON(w, p)
	}
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

// only leaves the items the given fields, as far as they have them.
func (p *page) only(fields []string) error {
	for i, x := range p.Items {
		whole, err := json.Marshal(x)
		if err != nil {
			return fmt.Errorf("encode an item: %w", err)
		}
		var have map[string]json.RawMessage
		if err := json.Unmarshal(whole, &have); err != nil {
			return fmt.Errorf("decode an item: %w", err)
		}
		some := map[string]json.RawMessage{}
		for _, f := range fields {
			if v, ok := have[f]; ok {
				some[f] = v
			}
		}
		p.Items[i] = some
	}
	return nil
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

// compareNames orders names as lists have them: of a user, then of a job, then by the
// number of a task.
func compareNames(a, b string) int {
	x, y := strings.Split(a, "/"), strings.Split(b, "/")
	return slices.CompareFunc(x, y, func(p, q string) int {
		m, errM := strconv.Atoi(p)
		n, errN := strconv.Atoi(q)
		if errM == nil && errN == nil {
			return cmp.Compare(m, n)
		}
		return cmp.Compare(p, q)
	})
}
