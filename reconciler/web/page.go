package web

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// maxRows bounds each table of the page; the API has all.
const maxRows = 200

//go:embed page.html
var pageSource string

// pageTemplate is parsed when a page is first asked for: most programs that link it show none.
var pageTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"commit": func(c string) string { return c[:min(len(c), 12)] },
		"cores":  func(milli int64) string { return fmt.Sprintf("%.1f", float64(milli)/1000) },
		"bytes":  bytesText,
		"since":  sinceText,
		"ports":  portsText,
		"last":   func(list []string) string { return strings.Join(list[max(0, len(list)-1):], "") },
	}).Parse(pageSource))
})

// pageData is what the page shows.
type pageData struct {
	*status.Status
	Machines []status.MachineStatus
	Jobs     []status.JobStatus
	Tasks    []status.TaskStatus // what needs attention first, of each
	More     int                 // tasks, jobs and machines that are left out
}

const (
	// eventPage is the event of a page that is watched: its body, as a text.
	eventPage = "page"
	// pageEvery is the least time between two bodies that a browser is sent.
	pageEvery = time.Second
)

// pagePolicy lets the page run the script that it has, which asks for nothing but the page.
var pagePolicy = sync.OnceValue(func() string {
	_, script, _ := strings.Cut(pageSource, "<script>")
	script, _, _ = strings.Cut(script, "</script>")
	sum := sha256.Sum256([]byte(script))
	return "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
})

// page shows the status to people, and watched what is new of it. It loads nothing else.
func (s *Server) page(w http.ResponseWriter, r *http.Request) error {
	q := &query{r.URL.Query(), nil}
	watch := q.flag("watch")
	if q.err != nil {
		return q.err
	}
	if watch {
		return s.watches.page(w, r)
	}
	cell, _, err := s.cfg.Cell.Snapshot(r.Context())
	if err != nil {
		return stopped(err)
	}
	b, err := pageOf(cell, "page")
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", pagePolicy())
	_, _ = w.Write(b) // a client that has left needs no answer
	return nil
}

// pageOf returns the page of a cell, or its body.
func pageOf(cell *status.Snapshot, what string) ([]byte, error) {
	d := pageData{Status: cell.Brief()}
	var moreMachines, moreJobs, moreTasks int
	d.Machines, moreMachines = first(slices.Values(cell.Machines()), func(m *status.MachineStatus) bool { return !m.Plain() })
	d.Jobs, moreJobs = first(cell.Jobs(), func(j *status.JobStatus) bool { return j.Reason != "" })
	d.Tasks, moreTasks = first(cell.Tasks(), func(t *status.TaskStatus) bool {
		return t.State != status.TaskRunning && t.State != status.TaskDone
	})
	d.More = moreMachines + moreJobs + moreTasks
	var b bytes.Buffer
	if err := pageTemplate().ExecuteTemplate(&b, what, d); err != nil {
		return nil, fmt.Errorf("status page: %w", err)
	}
	return b.Bytes(), nil
}

// page sends the body of the page, and again when the cell is another.
func (x *watches) page(w http.ResponseWriter, r *http.Request) error {
	end, err := x.beginCell(r)
	if err != nil {
		return err
	}
	defer end()
	out, err := newEventStream(w)
	alive, pace := time.NewTicker(keepAlive), time.NewTicker(pageEvery)
	defer alive.Stop()
	defer pace.Stop()
	for err == nil {
		_, place := x.feed.current() // before the look: what is newer than that is not missed
		cell, _, lost := x.feed.look(r.Context())
		if lost != nil {
			return nil // the browser comes again
		}
		var body []byte
		if body, err = pageOf(cell, "body"); err != nil {
			_ = out.fail(&failure{http.StatusInternalServerError, err.Error(), "see the log of the master"})
			return nil
		}
		if err = out.event(eventPage, 0, string(body)); err == nil {
			err = out.flush()
		}
		for waits := err == nil; waits; {
			select {
			case <-r.Context().Done():
				return nil
			case <-place.newer:
				waits = false
			case <-alive.C: // the time that the page is of, if nothing else
				waits = false
			}
		}
		select {
		case <-pace.C:
		case <-r.Context().Done():
			return nil
		}
	}
	return nil // the client has left
}

// first returns as many as the page has room for, those that need attention first, and
// how many more there are.
func first[T any](all iter.Seq[*T], attention func(*T) bool) (out []T, more int) {
	var calm []T
	n := 0
	for x := range all {
		n++
		list := &calm
		if attention(x) {
			list = &out
		}
		if len(*list) < maxRows {
			*list = append(*list, *x)
		}
	}
	out = append(out, calm[:min(len(calm), maxRows-len(out))]...)
	return out, n - len(out)
}

// bytesText returns "1.5 GiB".
func bytesText(n int64) string {
	const units = "KMGTPE"
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/1024, 0
	for v >= 1024 && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	return fmt.Sprintf("%.1f %ciB", v, units[i])
}

// sinceText returns the time from t to at, such as "3m5s".
func sinceText(t, at time.Time) string {
	if t.IsZero() {
		return ""
	}
	return max(0, at.Sub(t)).Truncate(time.Second).String()
}

// portsText returns "http 20001, admin 20002", sorted by name.
func portsText(ports schema.Ports) string {
	var list []string
	for _, p := range ports {
		list = append(list, fmt.Sprintf("%s %d", p.Name, p.Port))
	}
	return strings.Join(list, ", ")
}
