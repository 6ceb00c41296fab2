package link

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/musterhq/muster/schema/linkpb"
)

// broken is a stream that still had a message when it ended.
type broken struct{ linkpb.Link_SessionClient }

func (broken) Recv() (*linkpb.MasterMessage, error) { return &linkpb.MasterMessage{}, nil }

func (broken) Send(*linkpb.AgentMessage) error { return io.EOF }

// An agent that is asked to end while a message of the master lies unread ends: what
// it cannot send any more does not wait for a reader that has gone.
func TestSendAfterTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &session{stream: broken{}, in: make(chan *linkpb.MasterMessage), err: make(chan error, 1)}
		go s.receive(ctx)
		synctest.Wait()
		cancel()
		synctest.Wait()
		if err := s.send(&linkpb.AgentMessage{}); !errors.Is(err, context.Canceled) {
			t.Errorf("send: %v, want that the session was cancelled", err)
		}
	})
}
