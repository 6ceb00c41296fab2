package facts

import (
	"testing"

	"github.com/musterhq/muster/schema"
)

// What others did to a task fails no rollout.
func TestFailure(t *testing.T) {
	t.Parallel()
	killed := schema.Exit{Code: -1, Blameless: true, Message: "its keeper was killed, and the task with it"}
	own := schema.Exit{Code: 3}
	for name, tt := range map[string]struct {
		exits []schema.Exit
		want  string
	}{
		"keepers killed":       {[]schema.Exit{killed, killed, killed}, ""},
		"one crash among them": {[]schema.Exit{killed, own, killed}, ""},
		"one crash":            {[]schema.Exit{killed, own}, ""},
		"two crashes":          {[]schema.Exit{own, killed, own}, "ended twice: exited with status 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := failure(&schema.TaskRecord{Machine: "m1"}, &schema.TaskStatus{State: schema.Waiting, Exits: tt.exits}); got != tt.want {
				t.Errorf("failure %q, want %q", got, tt.want)
			}
		})
	}
}
