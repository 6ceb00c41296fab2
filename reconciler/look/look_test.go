package look_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/musterhq/muster/reconciler/look"
	"github.com/musterhq/muster/reconciler/model"
)

// TestLook: those who ask before a look begins share it; who asks while it is under
// way gets a later one; who has left gets none.
func TestLook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := look.New()
		found := make(chan string, 4)
		ask := func(ctx context.Context) {
			s, err := r.Look(ctx)
			if err != nil {
				s.Commit = err.Error()
			}
			found <- s.Commit
		}
		gone, leave := context.WithCancel(t.Context())
		go ask(t.Context())
		go ask(t.Context())
		go ask(gone)
		synctest.Wait()
		leave()
		if got := <-found; got != context.Canceled.Error() {
			t.Errorf("who has left got %s", got)
		}
		<-r.Asked()
		first := r.Begin()
		go ask(t.Context())
		synctest.Wait()
		select {
		case <-r.Asked(): // so a source that waits looks again
		default:
			t.Error("no look is due for who asked while one was under way")
		}
		first(model.Seen{Commit: "one"})
		for range 2 {
			if got := <-found; got != "one" {
				t.Errorf("found %s", got)
			}
		}
		synctest.Wait()
		if len(found) > 0 {
			t.Error("a look that had begun has answered a later request")
		}
		r.Begin()(model.Seen{Commit: "two", Trouble: errors.New("away")})
		if got := <-found; got != "two" {
			t.Errorf("found %s", got)
		}
	})
}
