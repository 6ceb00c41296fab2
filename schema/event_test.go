package schema

import "testing"

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
