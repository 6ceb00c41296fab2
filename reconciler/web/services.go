package web

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
)

// services answers with a page of the services of the cell, or of one by name.
func services(look snapshots) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		q := &query{r.URL.Query(), nil}
		limit, after, name := q.number("limit", defaultList), q.Get("continue"), q.Get("name")
		if limit < 1 || limit > maxList {
			q.fail("limit", "a number from 1 to "+strconv.Itoa(maxList))
		}
		if q.err != nil {
			return q.err
		}
		cell, _, err := look(r.Context())
		if err != nil {
			return stopped(err)
		}
		if name != "" && cell.Service(name) == nil {
			return unknownService(cell, name)
		}
		p := &page{Version: cell.Brief().Version, Items: []any{}, Replica: cell.Brief().Replica}
		last := ""
		for _, v := range cell.Services() {
			if name != "" && v.Short() != name {
				continue
			}
			p.Total++
			switch {
			case after != "" && model.CompareNames(v.Short(), after) <= 0: // on an earlier page
			case len(p.Items) < limit:
				p.Items, last = append(p.Items, cell.Serving(v)), v.Short()
			default:
				p.Continue = last
			}
		}
		w.Header().Set("Content-Type", "application/json")
		return writeJSON(w, p)
	}
}

func unknownService(cell *status.Snapshot, name string) error {
	return &failure{http.StatusNotFound, fmt.Sprintf("cell %s has no service %.200q", cell.Brief().Cell, name), "muster services lists all services"}
}

// whyService explains a service. Behind may be nil.
func whyService(look snapshots, behind func(lacks func(key string) bool) map[string]time.Time) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		cell, _, err := look(r.Context())
		if err != nil {
			return stopped(err)
		}
		name := r.URL.Query().Get("name")
		v := cell.Service(name)
		if v == nil {
			return unknownService(cell, name)
		}
		var late map[string]time.Time
		if behind != nil {
			late = behind(cell.Concerns(v))
		}
		w.Header().Set("Content-Type", "application/json")
		return writeJSON(w, cell.ExplainService(v, late, time.Now()))
	}
}
