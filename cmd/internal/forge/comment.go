package forge

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/schema"
)

const (
	pageSize = 100 // comments in an answer: the most that these forges give
	maxPages = 50
	// answerTimeout is for one request, and maxAnswer for the bytes of its answer.
	answerTimeout = 30 * time.Second
	maxAnswer     = 32 << 20
)

// comment is a comment as the forges have it.
type comment struct {
	ID   int64  `json:"id"`
	Body string `json:"body"`
	URL  string `json:"html_url"` // GitLab has none
	User person `json:"user"`     // of GitLab, Author
	// Author is that of GitLab.
	Author person `json:"author"`
}

type person struct {
	Login    string `json:"login"`
	Username string `json:"username"` // of GitLab
}

// by is who has made it.
func (c *comment) by() string { return cmp.Or(c.User.Login, c.Author.Username) }

// Put makes the comment of a name have a text, and reports whether it is a new one. The newest
// that has the name counts.
func (t *Thread) Put(ctx context.Context, name, text string) (made bool, err error) {
	author := t.author
	if author == "" {
		var me person
		if err := t.do(ctx, http.MethodGet, t.user, nil, &me); err != nil {
			return false, fmt.Errorf("whose token is it: %w", err)
		}
		author = cmp.Or(me.Username, me.Login)
	}
	old, _, err := t.find(ctx, author, mark(name))
	if err != nil {
		return false, fmt.Errorf("read the comments: %w", err)
	}
	body := map[string]string{"body": mark(name) + text}
	method, at := http.MethodPost, t.list
	switch {
	case old != nil && old.Body == body["body"]:
		return false, nil
	case old != nil && t.kind == GitLab:
		method, at = http.MethodPut, t.edit+"/"+strconv.FormatInt(old.ID, 10)
	case old != nil:
		method, at = http.MethodPatch, t.edit+"/"+strconv.FormatInt(old.ID, 10)
	}
	if err := t.do(ctx, method, at, body, nil); err != nil {
		return false, fmt.Errorf("write the comment: %w", err)
	}
	if old != nil {
		return false, nil
	}
	return true, t.keepOne(ctx, author, mark(name))
}

// keepOne deletes all but the newest comment of an author that begin so: another job may have made
// one since this one looked, as Gitea and Forgejo of some versions run jobs of a pull request at once.
func (t *Thread) keepOne(ctx context.Context, author, begins string) error {
	_, older, err := t.find(ctx, author, begins)
	if err != nil {
		return fmt.Errorf("read the comments again: %w", err)
	}
	for _, id := range older {
		if err := t.do(ctx, http.MethodDelete, t.edit+"/"+strconv.FormatInt(id, 10), nil, nil); err != nil {
			return fmt.Errorf("delete a comment that another job has made: %w", err)
		}
	}
	return nil
}

// find returns the newest comment of an author that begins so, nil if there is none, and the
// numbers of the others.
func (t *Thread) find(ctx context.Context, author, begins string) (found *comment, older []int64, err error) {
	seen := map[int64]bool{}
	for page := 1; page <= maxPages; page++ {
		q := url.Values{"page": {strconv.Itoa(page)}, "per_page": {strconv.Itoa(pageSize)}}
		if t.kind == Gitea || t.kind == Forgejo {
			q = url.Values{"page": {strconv.Itoa(page)}, "limit": {strconv.Itoa(pageSize)}}
		}
		var all []comment
		if err := t.do(ctx, http.MethodGet, t.list+"?"+q.Encode(), nil, &all); err != nil {
			return nil, nil, err
		}
		news := false // Gitea gives all comments with each page
		for i := range all {
			c := &all[i]
			if seen[c.ID] {
				continue
			}
			seen[c.ID], news = true, true
			switch {
			case c.by() != author || !strings.HasPrefix(strings.ReplaceAll(c.Body, "\r\n", "\n"), begins):
			case found == nil:
				found = c
			case c.ID > found.ID:
				found, older = c, append(older, found.ID)
			default:
				older = append(older, c.ID)
			}
		}
		if len(all) < pageSize || !news {
			return found, older, nil
		}
	}
	return found, older, nil
}

// do sends a request, and decodes the answer into one if it is not nil.
func (t *Thread) do(ctx context.Context, method, at string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var b []byte
	if body != nil {
		var err error
		if b, err = json.Marshal(body); err != nil {
			return err
		}
	}
	r, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(b))
	if err != nil {
		return err
	}
	switch t.kind {
	case GitLab:
		r.Header.Set("PRIVATE-TOKEN", t.token)
	case GitHub:
		r.Header.Set("Authorization", "Bearer "+t.token)
		r.Header.Set("Accept", "application/vnd.github+json")
	case Gitea, Forgejo:
		r.Header.Set("Authorization", "token "+t.token)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, at, err)
	}
	if method == http.MethodDelete && resp.StatusCode == http.StatusNotFound { // the other job was first
		return nil
	}
	if resp.StatusCode/100 != 2 {
		return t.refused(method, at, resp, got)
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(got, answer); err != nil {
		return fmt.Errorf("%s %s: %w", method, at, err)
	}
	return nil
}

// client follows no redirect: a token is for the forge that it is of.
var client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
	return errors.New("it redirects: name the address that it redirects to")
}}

// refused says why a request failed.
func (t *Thread) refused(method, at string, resp *http.Response, got []byte) error {
	var said struct {
		Message json.RawMessage `json:"message"` // GitLab's may be an object
	}
	_ = json.Unmarshal(got, &said) // what is no JSON is not shown
	hint := "look at the status page of the forge, and run the job again"
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden || resp.StatusCode == http.StatusNotFound {
		hint = map[Kind]string{
			GitHub:  "the job needs permissions: pull-requests: write; pull requests from forks do not get it",
			Gitea:   "the job's token must be allowed to write to pull requests: Settings, Actions, General of the repository",
			Forgejo: "the job's token must be allowed to write to pull requests; those from forks are not",
			GitLab:  TokenVariable + " must be a project access token of the role Reporter or higher with the scope api: a job's own token cannot write comments",
		}[t.kind]
	}
	return schema.Hintf(hint, "%s %s: %s %s", method, at, resp.Status, strings.Trim(string(said.Message), `"`))
}
