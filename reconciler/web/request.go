package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/lazyregexp"
)

// maxWait is the longest that one request may wait.
const maxWait = time.Minute

// commitName is a commit's hash, or the beginning of one.
var commitName = lazyregexp.New(`^[0-9a-f]{1,64}$`)

// failure is an error with its status code, and what to do about it.
type failure struct {
	code    int
	message string
	hint    string
}

func (f *failure) Error() string { return f.message }

// answerOf is the JSON of a failure.
type answerOf struct {
	Error string `json:"error"`
	Hint  string `json:"hint"`
}

// readsOnly returns whether a request changes nothing and takes nothing over.
func readsOnly(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && r.Header.Get("Upgrade") == ""
}

// known errs with the first parameter of a request that is none of those that it takes.
func known(r *http.Request, takes []string) error {
	q := r.URL.Query()
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if !slices.Contains(takes, name) {
			hint := fmt.Sprintf("%s takes %s", r.URL.Path, strings.Join(takes, ", "))
			if len(takes) == 0 {
				hint = r.URL.Path + " takes no parameters"
			}
			return badRequest(hint, "there is no parameter %.80q", name)
		}
	}
	if watch, err := strconv.ParseBool(q.Get("watch")); q.Has("version") && !watch && (err == nil || !q.Has("watch")) {
		return badRequest("add watch=1, or leave version out", "version=%.80s: only a watch begins at a version", q.Get("version"))
	}
	return nil
}

// stopped is the answer of a master that no longer leads.
func stopped(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	hint := "the master is starting or stopping; try again"
	if h, ok := errors.AsType[interface {
		error
		Hint() string
	}](err); ok {
		hint = h.Hint()
	}
	return &failure{http.StatusServiceUnavailable, err.Error(), hint}
}

func badRequest(hint, format string, args ...any) error {
	return &failure{http.StatusBadRequest, fmt.Sprintf(format, args...), hint}
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// notFound is the answer when a cell has nothing that was asked for.
func notFound(err error) error {
	var none *model.NotFoundError
	if !errors.As(err, &none) {
		return err
	}
	return &failure{http.StatusNotFound, none.Message, none.Hint}
}

// query parses parameters; the first mistake is kept.
type query struct {
	url.Values
	err error
}

func (q *query) fail(name, want string) {
	if q.err == nil {
		q.err = badRequest("give "+want+", or leave "+name+" out", "%s=%.80s: want %s", name, q.Get(name), want)
	}
}

func (q *query) id(name string) uint64 {
	if q.Get(name) == "" {
		return 0
	}
	n, err := strconv.ParseUint(q.Get(name), 10, 64)
	if err != nil {
		q.fail(name, "a number from 0")
	}
	return n
}

// number returns a number from 0, or none when it is absent.
func (q *query) number(name string, none int) int {
	if q.Get(name) == "" {
		return none
	}
	n, err := strconv.Atoi(q.Get(name))
	if err != nil || n < 0 {
		q.fail(name, "a number from 0")
	}
	return n
}

// selector returns the label selector; the one that picks all when it is absent.
func (q *query) selector() schema.Selector {
	text := q.Get("selector")
	if text == "" {
		return schema.Selector{}
	}
	s, err := schema.ParseSelector(text)
	if err != nil && q.err == nil {
		q.err = badRequest("such as tier=front,env in (prod,test)", "%v", err)
	}
	return s
}

// kind returns a kind of event, "" when it is absent.
func (q *query) kind(name string) schema.EventKind {
	k := schema.EventKind(q.Get(name))
	if k != "" && !slices.Contains(schema.EventKinds(), k) {
		q.fail(name, "a kind of event, such as fail")
	}
	return k
}

func (q *query) flag(name string) bool {
	if q.Get(name) == "" {
		return false
	}
	b, err := strconv.ParseBool(q.Get(name))
	if err != nil {
		q.fail(name, "1 or 0")
	}
	return b
}

// time returns the time in RFC 3339, zero when it is absent.
func (q *query) time(name string) time.Time {
	if q.Get(name) == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, q.Get(name))
	if err != nil {
		q.fail(name, "a time such as 2026-01-02T15:04:05Z")
	}
	return t
}

// position returns a place in a log, nil when it is absent.
func (q *query) position(name string) *schema.LogPosition {
	if q.Get(name) == "" {
		return nil
	}
	p, err := schema.ParseLogPosition(q.Get(name))
	if err != nil {
		q.fail(name, "GENERATION/INCARNATION/OFFSET")
	}
	return &p
}

func (q *query) duration(name string) time.Duration {
	if q.Get(name) == "" {
		return 0
	}
	d, err := time.ParseDuration(q.Get(name))
	if err != nil || d < 0 {
		q.fail(name, "a duration such as 30s")
	}
	return min(d, maxWait)
}
