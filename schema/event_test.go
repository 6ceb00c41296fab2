package schema

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestEventKinds: the list has each constant once, and is sorted.
func TestEventKinds(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("event.go")
	if err != nil {
		t.Fatal(err)
	}
	var want []EventKind
	for _, m := range regexp.MustCompile(`(?m)^\tEvent\w+ +EventKind = "(\w+)"`).FindAllSubmatch(source, -1) {
		want = append(want, EventKind(m[1]))
	}
	slices.Sort(want)
	if got := EventKinds(); len(want) < 20 || !slices.Equal(got, want) {
		t.Errorf("kinds are\n%v, the constants\n%v", got, want)
	}
}

func TestEventQueryMatches(t *testing.T) {
	t.Parallel()
	start := Event{Kind: EventStart, Job: "u/web", Task: "u/web/1", Machine: "m1"}
	fail := Event{Kind: EventFail, Task: "u/web/1"}
	lost := Event{Kind: EventMachine, Machine: "m1"}
	for _, tc := range []struct {
		name  string
		query EventQuery
		want  [3]bool // start, fail, lost
	}{
		{"all", EventQuery{}, [3]bool{true, true, true}},
		{"job", EventQuery{Job: "u/web"}, [3]bool{true, true, false}},
		{"a job whose name begins alike", EventQuery{Job: "u/we"}, [3]bool{}},
		{"task", EventQuery{Task: "u/web/1"}, [3]bool{true, true, false}},
		{"another task", EventQuery{Task: "u/web/11"}, [3]bool{}},
		{"machine", EventQuery{Machine: "m1"}, [3]bool{true, false, true}},
		{"kind", EventQuery{Kind: EventFail}, [3]bool{false, true, false}},
		{"two fields", EventQuery{Kind: EventFail, Machine: "m1"}, [3]bool{}},
	} {
		if got := [3]bool{tc.query.Matches(&start), tc.query.Matches(&fail), tc.query.Matches(&lost)}; got != tc.want {
			t.Errorf("%s: got %v, want %v", tc.name, got, tc.want)
		}
	}
}
