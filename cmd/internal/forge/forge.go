package forge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/musterhq/muster/schema"
)

// Kind is a forge by the form of its API and of its CI's environment.
type Kind string

// The kinds.
const (
	GitHub  Kind = "github"
	Gitea   Kind = "gitea"
	Forgejo Kind = "forgejo"
	GitLab  Kind = "gitlab"
)

// Kinds lists all kinds.
func Kinds() []Kind { return []Kind{GitHub, Gitea, Forgejo, GitLab} }

// authors are who comments that are made with the token of a CI job are by; "" asks the forge.
var authors = map[Kind]string{GitHub: "github-actions[bot]", Gitea: "gitea-actions", Forgejo: "forgejo-actions", GitLab: ""}

// TokenVariable is the environment variable with the token; the others are set by the CI.
const TokenVariable = "MUSTER_COMMENT_TOKEN"

// Thread is the comments of one pull request.
type Thread struct {
	kind   Kind
	list   string // URL of its comments
	edit   string // URL of a comment, without its number
	user   string // URL that says whose token it is, of forges that do
	token  string
	author string
}

// From returns the thread of the pull request that a CI job is for, by its environment; false if
// it is for none. author is who its comments are by, "" for the kind's own.
func From(kind Kind, author string, env func(string) string) (*Thread, bool, error) {
	t := &Thread{kind: kind, author: cmp.Or(author, authors[kind]), token: env(TokenVariable)}
	var number int64
	var api, project string
	var err error
	switch kind {
	case GitHub, Gitea, Forgejo:
		api, project = env("GITHUB_API_URL"), env("GITHUB_REPOSITORY")
		number, err = numberOf(env("GITHUB_EVENT_PATH"))
	case GitLab:
		api, project = env("CI_API_V4_URL"), env("CI_PROJECT_ID")
		if n := env("CI_MERGE_REQUEST_IID"); n != "" {
			number, err = strconv.ParseInt(n, 10, 64)
		}
	default:
		return nil, false, fmt.Errorf("forge %q: want one of %v", kind, Kinds())
	}
	if err != nil || number == 0 {
		return nil, false, err
	}
	base, err := url.Parse(api)
	if err != nil || base.Host == "" || project == "" {
		return nil, false, schema.Hintf("run it in a job of that forge's CI", "forge %s: the environment does not say which repository this is", kind)
	}
	if t.token == "" {
		return nil, false, schema.Hintf("set it in the job to the token that may write comments", "%s is not set", TokenVariable)
	}
	if kind == GitLab {
		t.list = base.JoinPath("projects", project, "merge_requests", strconv.FormatInt(number, 10), "notes").String()
		t.edit, t.user = t.list, base.JoinPath("user").String()
		return t, true, nil
	}
	issues := base.JoinPath("repos", project, "issues")
	t.list, t.edit = issues.JoinPath(strconv.FormatInt(number, 10), "comments").String(), issues.JoinPath("comments").String()
	return t, true, nil
}

// numberOf returns the number of the pull request that an event is about; 0 if it is about none.
func numberOf(file string) (int64, error) {
	if file == "" {
		return 0, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("the event of the CI: %w", err)
	}
	var event struct {
		Number      int64 `json:"number"`
		PullRequest struct {
			Number int64 `json:"number"`
		} `json:"pull_request"`
	}
	if err := json.Unmarshal(b, &event); err != nil {
		return 0, fmt.Errorf("the event of the CI in %s: %w", file, err)
	}
	if event.PullRequest.Number > 0 {
		return event.PullRequest.Number, nil
	}
	return 0, nil
}

// mark is the first line of a comment, which readers do not see.
func mark(name string) string {
	return "<!-- muster: " + strings.ReplaceAll(name, "--", "- -") + " -->\n"
}
