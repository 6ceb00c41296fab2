package forgetest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The pull request that there is, and the token that may write its comments.
const (
	Number     = 7
	Repository = "acme/fleet"
	Project    = "42" // the repository on GitLab
	Token      = "token-of-the-job"
)

// Comment is a comment.
type Comment struct {
	ID     int64
	Author string
	Body   string
}

// Forge is the forge.
type Forge struct {
	kind string
	bot  string // whose token it is

	mu       sync.Mutex // guards what follows
	comments []Comment
	made     int64 // comments, of which some may be gone
	race     []string
	writes   int
	mistakes []string
	denies   bool
}

// New returns a forge of a kind, github, gitea, forgejo or gitlab, without comments.
func New(kind string) *Forge {
	bots := map[string]string{"github": "github-actions[bot]", "gitea": "gitea-actions", "forgejo": "forgejo-actions", "gitlab": "project_42_bot_ab12"}
	return &Forge{kind: kind, bot: bots[kind]}
}

// Env returns the variables of a CI job for the pull request, of a forge at a URL; event is the
// file with its event.
func (f *Forge) Env(url, event string) map[string]string {
	switch f.kind {
	case "gitlab":
		return map[string]string{"CI_API_V4_URL": url + "/api/v4", "CI_PROJECT_ID": Project, "CI_MERGE_REQUEST_IID": strconv.Itoa(Number)}
	case "github":
		return map[string]string{"GITHUB_API_URL": url, "GITHUB_REPOSITORY": Repository, "GITHUB_EVENT_PATH": event}
	}
	return map[string]string{"GITHUB_API_URL": url + "/api/v1", "GITHUB_REPOSITORY": Repository, "GITHUB_EVENT_PATH": event}
}

// Event is the event of a job for the pull request.
func Event() string {
	return fmt.Sprintf(`{"action":"synchronize","pull_request":{"number":%d}}`, Number)
}

// Add adds a comment of somebody; "" is the token's owner.
func (f *Forge) Add(author, body string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.add(author, body)
}

// add adds a comment, and returns it. The caller has the lock.
func (f *Forge) add(author, body string) *Comment {
	f.comments = append(f.comments, Comment{100 + f.made, cmp.Or(author, f.bot), body})
	f.made++
	return &f.comments[len(f.comments)-1]
}

// Race has another job of the token's owner make a comment just before the next one is made.
func (f *Forge) Race(body string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.race = append(f.race, body)
}

// Comments returns the comments, and how many times one was written.
func (f *Forge) Comments() ([]Comment, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.comments), f.writes
}

// Mistakes returns what was asked that a forge does not take.
func (f *Forge) Mistakes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.mistakes)
}

// Deny has the token write nothing from now on.
func (f *Forge) Deny() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.denies = true
}

// ServeHTTP implements http.Handler.
func (f *Forge) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := map[string]string{
		"github":  fmt.Sprintf("/repos/%s/issues/%d/comments", Repository, Number),
		"gitea":   fmt.Sprintf("/api/v1/repos/%s/issues/%d/comments", Repository, Number),
		"forgejo": fmt.Sprintf("/api/v1/repos/%s/issues/%d/comments", Repository, Number),
		"gitlab":  fmt.Sprintf("/api/v4/projects/%s/merge_requests/%d/notes", Project, Number),
	}[f.kind]
	edit, change := strings.Replace(list, fmt.Sprintf("/%d/", Number), "/", 1)+"/", http.MethodPatch
	if f.kind == "gitlab" {
		edit, change = list+"/", http.MethodPut
	}
	id, isOne := strings.CutPrefix(r.URL.Path, edit)
	switch {
	case !f.authorized(r):
		f.answer(w, http.StatusUnauthorized, map[string]string{"message": "401 Unauthorized"})
	case f.kind == "gitlab" && r.Method == http.MethodGet && r.URL.Path == "/api/v4/user":
		f.answer(w, http.StatusOK, map[string]any{"id": 9, "username": f.bot})
	case r.Method == http.MethodGet && r.URL.Path == list:
		f.answer(w, http.StatusOK, f.page(r))
	case r.Method != http.MethodGet && f.denies:
		f.answer(w, http.StatusForbidden, map[string]string{"message": "Resource not accessible by integration"})
	case r.Method == http.MethodPost && r.URL.Path == list:
		for _, body := range f.race {
			f.add("", body)
		}
		f.race, f.writes = nil, f.writes+1
		f.answer(w, http.StatusCreated, f.shown(f.add("", f.body(r))))
	case r.Method == http.MethodDelete && isOne:
		f.comments = slices.DeleteFunc(f.comments, func(c Comment) bool { return strconv.FormatInt(c.ID, 10) == id })
		w.WriteHeader(http.StatusNoContent)
	case r.Method == change && isOne:
		for i := range f.comments {
			if strconv.FormatInt(f.comments[i].ID, 10) == id {
				f.comments[i].Body, f.writes = f.body(r), f.writes+1
				f.answer(w, http.StatusOK, f.shown(&f.comments[i]))
				return
			}
		}
		f.mistake(w, r)
	default:
		f.mistake(w, r)
	}
}

func (f *Forge) authorized(r *http.Request) bool {
	switch f.kind {
	case "gitlab":
		return r.Header.Get("PRIVATE-TOKEN") == Token
	case "github":
		return r.Header.Get("Authorization") == "Bearer "+Token
	}
	return r.Header.Get("Authorization") == "token "+Token
}

// page returns the comments that a request asks for: Gitea and Forgejo give all of them.
func (f *Forge) page(r *http.Request) []any {
	all := []any{}
	for i := range f.comments {
		all = append(all, f.shown(&f.comments[i]))
	}
	if f.kind == "gitea" || f.kind == "forgejo" {
		return all
	}
	page, _ := strconv.Atoi(r.URL.Query().Get("page"))
	size, _ := strconv.Atoi(r.URL.Query().Get("per_page"))
	page, size = max(1, page), min(100, cmp.Or(size, 30))
	from := min(len(all), (page-1)*size)
	return all[from:min(len(all), from+size)]
}

func (f *Forge) shown(c *Comment) any {
	if f.kind == "gitlab" {
		return map[string]any{"id": c.ID, "body": c.Body, "author": map[string]any{"username": c.Author}, "system": false}
	}
	return map[string]any{"id": c.ID, "body": c.Body, "user": map[string]any{"login": c.Author}}
}

// body returns the text of a comment that a request writes.
func (f *Forge) body(r *http.Request) string {
	var b struct {
		Body string `json:"body"`
	}
	if err := json.NewDecoder(r.Body).Decode(&b); err != nil || b.Body == "" || r.Header.Get("Content-Type") != "application/json" || len(b.Body) > 65_536 {
		f.mistakes = append(f.mistakes, fmt.Sprintf("%s %s: %d bytes as %q: %v", r.Method, r.URL, len(b.Body), r.Header.Get("Content-Type"), err))
	}
	return b.Body
}

func (f *Forge) mistake(w http.ResponseWriter, r *http.Request) {
	f.mistakes = append(f.mistakes, fmt.Sprintf("%s %s", r.Method, r.URL))
	f.answer(w, http.StatusNotFound, map[string]string{"message": "404 Not Found"})
}

func (f *Forge) answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(v); err != nil {
		f.mistakes = append(f.mistakes, err.Error())
	}
}
