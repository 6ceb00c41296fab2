package relay

import (
	"errors"
	"io"
	"os"
	"testing"
)

// TestFollowEnds: that changes are not seen any more is said, unless the relay was closed.
func TestFollowEnds(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]error{"closed": nil, "nothing to read any more": io.EOF} {
		watch, changes, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r := &Relay{watch: watch, done: make(chan struct{})}
		var said error
		go r.follow(func(err error) { said = err })
		if want != nil {
			err = changes.Close()
			<-r.done
			err = errors.Join(err, watch.Close())
		} else {
			err = watch.Close()
			<-r.done
			err = errors.Join(err, changes.Close())
		}
		if err != nil {
			t.Error(err)
		}
		if !errors.Is(said, want) || want == nil && said != nil {
			t.Errorf("%s: %v, want %v", name, said, want)
		}
	}
}
