package model

import (
	"fmt"
	"strings"
	"time"

	"github.com/musterhq/muster/schema"
)

// Seen is what a look at the config repository found.
type Seen struct {
	// Commit is the head as it was last read, "" before the first: it stays
	// while there is trouble.
	Commit string
	// Trouble says what keeps the head from being read now, and has a
	// schema.HintedError for what to do about it; nil if nothing does.
	Trouble error
	// At is when Commit was last known to be the head; zero: never.
	At time.Time
	// Rewritten is the head before Commit if Commit does not descend from it,
	// as after a forced push. It is set once, with the first sight of Commit.
	Rewritten string
	// Notes are plain words on how the repository is followed, for the status.
	Notes []string
}

// SourceEvents returns what the history says of a repository that was seen as
// before and is now seen as after.
func SourceEvents(before, after Seen, now time.Time) []schema.Event {
	var out []schema.Event
	add := func(format string, args ...any) {
		out = append(out, schema.Event{At: now, Kind: schema.EventSource, Commit: after.Commit, Message: fmt.Sprintf(format, args...)})
	}
	switch {
	case before.Trouble == nil && after.Trouble != nil:
		message, _ := schema.HintOf(after.Trouble)
		add("the repository cannot be read: %s", SourceLine(message))
	case before.Trouble != nil && after.Trouble == nil:
		add("the repository can be read again")
	}
	if after.Rewritten != "" {
		add("%s does not descend from %s, which was the head before: the history was rewritten, or another branch is followed; it is applied all the same",
			ShortCommit(after.Commit), ShortCommit(after.Rewritten))
	}
	return out
}

// SourceLine returns the first line of the repository's trouble, for where it has
// been said already that it is the repository's.
func SourceLine(trouble string) string {
	line, _, _ := strings.Cut(trouble, "\n")
	return strings.TrimPrefix(line, "repository ")
}

// ShortCommit returns the first 10 digits of a commit's hash, as git does; a
// name that is no hash, such as a work tree's, is returned whole.
func ShortCommit(commit string) string {
	const short, hash = 10, 40
	if len(commit) < hash || strings.Trim(commit, "0123456789abcdef") != "" {
		return commit
	}
	return commit[:short]
}
