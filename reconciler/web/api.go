package web

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

const (
	defaultEvents = 1000 // a page of events
	maxEvents     = 10_000
	logBuffer     = 32 << 10
)

// fail answers with an error. One that is not a failure is ours.
func (s *Server) fail(w http.ResponseWriter, err error) {
	f := &failure{code: http.StatusInternalServerError, message: err.Error()}
	if !errors.As(err, &f) && errors.Is(err, context.Canceled) {
		return // the client has left, or we are stopping
	}
	if f.code == http.StatusInternalServerError {
		s.cfg.Log.Error("request failed", "err", err) // the client may report it to nobody
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(f.code)
	_ = writeJSON(w, answerOf{f.message, f.hint}) // a client that has left needs no answer
}

// status answers with the snapshot, or the part of it that name and selector
// pick; its version is in a header.
func (s *Server) status(w http.ResponseWriter, r *http.Request) error {
	q := &query{r.URL.Query(), nil}
	after, wait, watch, want := q.id("after"), q.duration("wait"), q.flag("watch"), statusQueryOf(q)
	if q.err != nil {
		return q.err
	}
	if watch {
		return s.watches.status(w, r, want)
	}
	cell, err := s.snapshot(r.Context(), after, wait)
	if err != nil {
		return stopped(err)
	}
	return s.whole.with(w, r, want.whole(), func() error {
		v, err := want.of(cell)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Muster-Status-Version", strconv.FormatUint(cell.Brief().Version, 10))
		return writeJSON(w, v)
	})
}

// usage answers with what the tasks and machines use that name and selector
// pick.
func (s *Server) usage(w http.ResponseWriter, r *http.Request) error {
	q := query{r.URL.Query(), nil}
	group := status.Group{Name: q.Get("name"), Selector: q.selector()}
	if q.err != nil {
		return q.err
	}
	return s.whole.with(w, r, true, func() error {
		usage, err := s.cfg.Cell.Usages(r.Context())
		if err != nil {
			return stopped(err)
		}
		if group.Name != "" || !group.Selector.Empty() {
			cell, _, err := s.cfg.Cell.Snapshot(r.Context())
			if err != nil {
				return stopped(err)
			}
			if usage, err = usage.Of(group, cell); err != nil {
				return notFound(err)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		return writeJSON(w, usage)
	})
}

// snapshot returns the newest snapshot; when that is the one of version after,
// it waits for another. A version that is not ours is one of another process.
func (s *Server) snapshot(ctx context.Context, after uint64, wait time.Duration) (*status.Snapshot, error) {
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for {
		cell, newer, err := s.cfg.Cell.Snapshot(ctx)
		if err != nil || cell.Brief().Version != after || wait == 0 {
			return cell, err
		}
		select {
		case <-newer:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timeout.C:
			return cell, nil
		}
	}
}

// why explains a job or a task, or a machine if only that is given.
func (s *Server) why(w http.ResponseWriter, r *http.Request) error {
	q := query{r.URL.Query(), nil}
	index := q.number("index", -1)
	if q.err != nil {
		return q.err
	}
	machine := q.Get("machine")
	if machine != "" && q.Get("job") == "" {
		if index >= 0 {
			return badRequest("give job, as USER/JOB, or leave index out", "index=%d: it is of a task, and no job is named", index)
		}
		return s.whyMachine(w, r, machine)
	}
	job, err := s.job(q.Get("job"))
	if err != nil {
		return err
	}
	name := job.Short()
	switch {
	case index >= 0:
		name = job.Task(index).Short()
	case machine != "":
		return badRequest("give the task's index", "machine %.80q: it is asked about one task, and none is named", machine)
	}
	why, known, err := s.cfg.Cell.Why(r.Context(), name, machine)
	if err != nil {
		return stopped(err)
	}
	switch {
	case !known:
		return unknown(name)
	case machine == "":
	case why.Placement == nil:
		return &failure{http.StatusNotFound, name + " wants no machine", "muster why " + name + " shows its state"}
	case why.Placement.Verdict == nil:
		return noMachine(machine)
	}
	w.Header().Set("Content-Type", "application/json")
	return writeJSON(w, why)
}

// whyMachine explains a machine.
func (s *Server) whyMachine(w http.ResponseWriter, r *http.Request, name string) error {
	why, known, err := s.cfg.Cell.Why(r.Context(), "", name)
	if err != nil {
		return stopped(err)
	}
	if !known {
		return noMachine(name)
	}
	w.Header().Set("Content-Type", "application/json")
	return writeJSON(w, why)
}

func noMachine(name string) error {
	return &failure{http.StatusNotFound, fmt.Sprintf("the cell knows of no machine %.80q", name), "muster status lists the machines"}
}

// events answers with a page of the history.
func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	q := query{r.URL.Query(), nil}
	wait := q.duration("wait")
	want := schema.EventQuery{
		After: q.id("after"), Newest: q.flag("newest"), Limit: q.number("limit", defaultEvents),
		Job: q.Get("job"), Task: q.Get("task"), Machine: q.Get("machine"), Kind: q.kind("kind"),
	}
	if q.err == nil && (want.Limit == 0 || want.Limit > maxEvents) {
		q.fail("limit", fmt.Sprintf("a number from 1 to %d", maxEvents))
	}
	selector, watch := q.selector(), q.flag("watch")
	if q.err != nil {
		return q.err
	}
	if watch {
		return s.watchEvents(w, r, want, selector)
	}
	if err := s.ofJobs(r.Context(), &want, selector); err != nil {
		return err
	}
	records, err := s.recorded(r.Context(), want, wait)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	for i := range records {
		if err := writeJSON(w, &records[i]); err != nil {
			return nil //nolint:nilerr // the client has left
		}
	}
	return nil
}

// watchEvents answers with the events that match, and with those that follow.
func (s *Server) watchEvents(w http.ResponseWriter, r *http.Request, want schema.EventQuery, selector schema.Selector) error {
	version, resumed, err := versionOf(r)
	if err != nil {
		return err
	}
	if resumed {
		want.After, want.Newest = version, false
	}
	leave, err := s.watches.begin(r)
	if err != nil {
		return err
	}
	defer leave()
	var out *eventStream
	for {
		if err := s.ofJobs(r.Context(), &want, selector); err != nil && out == nil {
			return err
		}
		wait := keepAlive
		if out == nil {
			wait = 0
		}
		records, err := s.recorded(r.Context(), want, wait)
		if out == nil {
			if err != nil {
				return err
			}
			out, err = newEventStream(w)
		}
		for i := range records {
			if err == nil {
				want.After = records[i].ID
				err = out.event("", want.After, &records[i])
			}
		}
		if err == nil && len(records) == 0 {
			err = out.alive()
		}
		if err != nil || out.flush() != nil || r.Context().Err() != nil {
			return nil
		}
		want.Newest, want.Limit = false, defaultEvents
	}
}

// ofJobs narrows a query to the jobs that have labels now; an empty selector does not.
func (s *Server) ofJobs(ctx context.Context, want *schema.EventQuery, selector schema.Selector) error {
	if selector.Empty() {
		return nil
	}
	cell, _, err := s.cfg.Cell.Snapshot(ctx)
	if err != nil {
		return stopped(err)
	}
	picked, err := status.Group{Selector: selector}.Of(cell)
	if err != nil {
		return notFound(err)
	}
	want.AnyJob = picked.Brief().JobNames()
	return nil
}

// recorded returns the events that match, and waits for the first.
func (s *Server) recorded(ctx context.Context, want schema.EventQuery, wait time.Duration) ([]schema.EventRecord, error) {
	waiting, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		// First what is the newest: what comes between is not waited for.
		newest, err := s.cfg.Events.Since(schema.EventQuery{Newest: true, Limit: 1})
		if err != nil {
			return nil, err
		}
		records, err := s.cfg.Events.Since(want)
		if err != nil || len(records) > 0 || wait == 0 {
			return records, err
		}
		seen := want.After
		for _, n := range newest {
			seen = max(seen, n.ID)
		}
		if s.cfg.Events.Wait(waiting, seen) != nil {
			return nil, nil // the time is over: nothing is an answer
		}
	}
}

// logs answers with a log as it comes. Its first bytes decide the status code.
func (s *Server) logs(w http.ResponseWriter, r *http.Request) error {
	want, err := s.logRequest(r.URL.Query())
	if err != nil {
		return err
	}
	// A reader that was cut off while the task moved gets the rest first.
	from := want.Generation
	if want.From != nil {
		from = want.From.Generation
	}
	machine, err := s.locate(r.Context(), want.Task, from)
	if err != nil {
		return err
	}
	log, err := s.cfg.Logs.Logs(r.Context(), machine, want)
	if err != nil {
		return unreadable(err)
	}
	defer log.Close()
	buffer := make([]byte, logBuffer)
	n, err := log.Read(buffer)
	if n == 0 && err != nil && !errors.Is(err, io.EOF) {
		return unreadable(err)
	}
	stream(w, log, chunk{buffer, n, err})
	return nil
}

// locate returns the machine of a task's newest run; of the oldest from a
// generation on, if one is given. That there is none yet is an error.
func (s *Server) locate(ctx context.Context, task schema.TaskName, from uint64) (string, error) {
	machine, err := s.cfg.Cell.Locate(ctx, task, from)
	if err != nil {
		return "", stopped(err)
	}
	if machine != "" {
		return machine, nil
	}
	name := task.Short()
	switch _, known, err := s.cfg.Cell.Why(ctx, name, ""); {
	case err != nil:
		return "", stopped(err)
	case !known:
		return "", unknown(name)
	}
	return "", &failure{http.StatusNotFound, fmt.Sprintf("task %s was on no machine yet", name), "muster why " + name + " shows what it waits for"}
}

// unknown says that there is no such job or task.
func unknown(name string) error {
	return &failure{http.StatusNotFound, fmt.Sprintf("the cell knows of no %s", name), "muster status lists jobs and tasks"}
}

// unreadable says whose fault it is that there is no log.
func unreadable(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &failure{http.StatusNotFound, err.Error(), "logs are kept for a day after a task has ended, for a week after it has failed"}
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	return &failure{http.StatusBadGateway, err.Error(), "muster status lists the machines; the agent of this one must be connected"}
}

// chunk is what a Read returned.
type chunk struct {
	buffer []byte
	n      int
	err    error
}

// stream copies a log to the client, each piece at once. What goes wrong from
// here on is said in a trailer.
func stream(w http.ResponseWriter, log io.Reader, c chunk) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	for {
		if c.n > 0 {
			if _, err := w.Write(c.buffer[:c.n]); err != nil {
				return // the client has left
			}
			if flush.Flush() != nil {
				return
			}
		}
		if c.err != nil {
			break
		}
		c.n, c.err = log.Read(c.buffer)
	}
	if !errors.Is(c.err, io.EOF) {
		w.Header().Set(http.TrailerPrefix+trailerError, strings.Join(strings.Fields(c.err.Error()), " "))
	}
}

func (s *Server) logRequest(v url.Values) (schema.LogRequest, error) {
	q := query{v, nil}
	want := schema.LogRequest{
		Generation: q.id("generation"), Incarnation: q.number("incarnation", 0),
		Follow: q.flag("follow"), Tail: q.number("tail", -1),
		Previous: q.flag("previous"), Since: q.time("since"), From: q.position("from"), Framed: q.flag("framed"),
	}
	if q.err != nil {
		return want, q.err
	}
	var err error
	if want.Stream, err = schema.ParseLogStream(q.Get("stream")); err != nil {
		return want, badRequest("give stdout or stderr", "%v", err)
	}
	want.Task, err = s.task(q.Get("task"))
	return want, err
}

// task parses user/job/index or cell/user/job/index.
func (s *Server) task(name string) (schema.TaskName, error) {
	i := strings.LastIndexByte(name, '/')
	if n := strings.Count(name, "/"); n < 2 || n > 3 {
		return schema.TaskName{}, badRequest("such as search/web/0", "task %q: want user/job/index", name)
	}
	job, err := s.job(name[:i])
	if err != nil {
		return schema.TaskName{}, err
	}
	index, err := schema.ParseIndex(name[i+1:])
	if err != nil {
		return schema.TaskName{}, badRequest("such as search/web/0", "%v", err)
	}
	return job.Task(index), nil
}

// job parses user/job or cell/user/job.
func (s *Server) job(name string) (schema.JobName, error) {
	full := name
	if strings.Count(name, "/") == 1 {
		full = s.cfg.Name + "/" + name
	}
	job, err := schema.ParseJobName(full)
	if err != nil {
		return job, badRequest("such as search/web", "job %q: want user/job", name)
	}
	if job.Cell != s.cfg.Name {
		return job, &failure{http.StatusNotFound, fmt.Sprintf("job %s is not of this cell, %s", job, s.cfg.Name), "--master names another cell's master"}
	}
	return job, nil
}
