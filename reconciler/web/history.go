package web

import "net/http"

// History is what was planned for commits, and what then happened.
type History interface {
	// Answer returns what is known of the newest commit whose hash begins so, nil if nothing
	// is; with "", the newest commits, at most so many.
	Answer(commit string, most int) (answer any, err error)
}

// defaultHistory is how many commits are listed if nobody says how many.
const defaultHistory = 20

// history answers with a commit, or with the newest.
func history(of History) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		q := &query{r.URL.Query(), nil}
		name, most := q.Get("commit"), q.number("limit", defaultHistory)
		if q.err != nil {
			return q.err
		}
		if name != "" && !commitName.MatchString(name) {
			return badRequest("such as /v1/history?commit=1f00aa3", "commit %.80q: want a commit's hash, or the beginning of one, in lower-case hexadecimal digits", name)
		}
		answer, err := of.Answer(name, most)
		if err != nil {
			return err
		}
		if answer == nil {
			return &failure{http.StatusNotFound, "no commit " + name + " is known", "muster history lists the newest"}
		}
		w.Header().Set("Content-Type", "application/json")
		return writeJSON(w, answer)
	}
}
