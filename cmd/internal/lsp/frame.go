package lsp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/textproto"
	"strconv"
	"sync"
)

// maxMessage bounds a message: a document has at most some MiB.
const maxMessage = 64 << 20

// message is as much of a message of JSON-RPC as has to be known to pass it on.
type message struct {
	ID     json.RawMessage `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`

	raw []byte // as it was read
}

// readMessage reads a message with its header; io.EOF when there are no more.
func readMessage(r *bufio.Reader) (*message, error) {
	header, err := textproto.NewReader(r).ReadMIMEHeader()
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(header.Get("Content-Length"))
	if err != nil || n < 0 || n > maxMessage {
		return nil, fmt.Errorf("message with the length %q", header.Get("Content-Length"))
	}
	m := &message{raw: make([]byte, n)}
	if _, err := io.ReadFull(r, m.raw); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(m.raw, m); err != nil {
		return nil, fmt.Errorf("message: %w", err)
	}
	return m, nil
}

// writer writes messages; any goroutine may use it.
type writer struct {
	mu  sync.Mutex // guards out
	out io.Writer
}

func (w *writer) raw(b []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := fmt.Fprintf(w.out, "Content-Length: %d\r\n\r\n%s", len(b), b)
	return err
}

// send writes a message of ours.
func (w *writer) send(fields map[string]any) error {
	fields["jsonrpc"] = "2.0"
	b, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	return w.raw(b)
}

// queue sends messages in order to who may be too busy to read them: adding does not wait. Any
// goroutine may add to it.
type queue struct {
	mu   sync.Mutex // guards what follows
	todo [][]byte
	more chan struct{} // has one element when something was added
}

func newQueue() *queue { return &queue{more: make(chan struct{}, 1)} }

// add adds a message.
func (q *queue) add(b []byte) {
	q.mu.Lock()
	q.todo = append(q.todo, b)
	q.mu.Unlock()
	select {
	case q.more <- struct{}{}:
	default:
	}
}

// run writes what is added until ctx is done, or that fails.
func (q *queue) run(ctx context.Context, w *writer) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.more:
		}
		q.mu.Lock()
		todo := q.todo
		q.todo = nil
		q.mu.Unlock()
		for _, b := range todo {
			if w.raw(b) != nil {
				return // the other server has ended
			}
		}
	}
}
