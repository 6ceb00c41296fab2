package schema

import (
	"encoding/json"
	"fmt"
)

// Sticky says whether a task has a directory that outlives its generations, and
// whether it stays where that is. In JSON it is false, true or "stay".
type Sticky string

// The values of Sticky.
const (
	NotSticky  Sticky = ""     // it has none
	StickyHere Sticky = "true" // the directory is lost when the task moves
	StickyStay Sticky = "stay" // the task is not moved
)

// Has reports whether the task has a directory.
func (s Sticky) Has() bool { return s != NotSticky }

// MarshalJSON writes a boolean where one says it.
func (s Sticky) MarshalJSON() ([]byte, error) {
	if s == StickyStay {
		return json.Marshal(string(s))
	}
	return json.Marshal(s.Has())
}

// UnmarshalJSON reads a boolean, or "stay".
func (s *Sticky) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case "false", "null":
		*s = NotSticky
	case "true":
		*s = StickyHere
	case `"` + string(StickyStay) + `"`:
		*s = StickyStay
	default:
		return fmt.Errorf("sticky is %s: want true, false or %q", b, StickyStay)
	}
	return nil
}
