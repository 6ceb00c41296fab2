package relay_test

import (
	"os"
	"testing"

	"github.com/musterhq/muster/nodeagent/relay"
	"github.com/musterhq/muster/schema/thread"
)

// TestTry: a relay can be made where tasks can have networks; that packets go over it is seen with a kernel, in
// nodeagent/runtime.
func TestTry(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: needs root")
	}
	if err := thread.Run(relay.Try); err != nil {
		t.Error(err)
	}
}
