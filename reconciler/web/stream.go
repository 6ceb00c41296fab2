package web

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"time"
)

const (
	// keepAlive is how often a stream on which nothing happens says so, for those
	// between that cut what is silent.
	keepAlive = 15 * time.Second
	// streamTimeout is how long a reader may take nothing of what is there for it.
	streamTimeout = 30 * time.Second
	// streamBuffer is how much of a stream is written at once, about.
	streamBuffer = 64 << 10
	// eventError is the last event of a stream that the server ends.
	eventError = "error"
)

// streamError is the data of the event that ends a stream: the status code and what else
// an answer would have that is nothing but an error.
type streamError struct {
	Code int `json:"code"`
	answerOf
}

// eventStream is an answer of server-sent events, as the HTML standard has them.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buffer  bytes.Buffer
}

func newEventStream(w http.ResponseWriter) (*eventStream, error) {
	s := &eventStream{w: w, control: http.NewResponseController(w)}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // for proxies that would gather it
	s.buffer.WriteString(": muster\n\n")
	return s, s.flush()
}

// event writes an event. The id is what to go on from after it; 0: none.
func (s *eventStream) event(name string, id uint64, data any) error {
	if name != "" {
		fmt.Fprintf(&s.buffer, "event: %s\n", name)
	}
	if id > 0 {
		fmt.Fprintf(&s.buffer, "id: %d\n", id)
	}
	s.buffer.WriteString("data: ")
	if err := writeJSON(&s.buffer, data); err != nil { // in one line
		return err
	}
	s.buffer.WriteByte('\n')
	if s.buffer.Len() < streamBuffer {
		return nil
	}
	return s.flush()
}

// alive says that the stream goes on.
func (s *eventStream) alive() error {
	s.buffer.WriteString(": \n\n")
	return s.flush()
}

// fail ends the stream with what is wrong.
func (s *eventStream) fail(f *failure) error {
	if err := s.event(eventError, 0, streamError{f.code, answerOf{f.message, f.hint}}); err != nil {
		return err
	}
	return s.flush()
}

// flush writes what is there. It errs when the reader has left, or takes nothing.
func (s *eventStream) flush() error {
	if s.buffer.Len() == 0 {
		return nil
	}
	// A writer without deadlines is a test's.
	if err := s.control.SetWriteDeadline(time.Now().Add(streamTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	_, err := s.w.Write(s.buffer.Bytes())
	s.buffer.Reset()
	if err == nil {
		err = s.control.Flush()
	}
	return err
}
