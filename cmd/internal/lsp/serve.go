package lsp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"

	"github.com/musterhq/muster/schema"
)

// Config says what a server is made of.
type Config struct {
	In  io.Reader // from the editor
	Out io.Writer
	Log io.Writer // of people: stderr
	// Other is the command of the server that gets all that is not about mistakes, nil
	// for none.
	Other []string
	// Read reads the config repository at a directory.
	Read func(dir string) (schema.Tree, error)
	// Check finds what is wrong with a repository, and publishes all that it knows each time that is
	// more. It reports whether something is left that takes long, and errs when ctx is done, which
	// is soon after the repository has changed. One is called at a time.
	Check   func(ctx context.Context, r Repository, publish func([]schema.Diagnostic)) (left bool, err error)
	Version string
}

// Repository is a config repository to be checked.
type Repository struct {
	Dir    string
	Tree   schema.Tree // with open documents as they are typed
	Edited []string    // directories, from Dir, of documents that have just changed: what is wrong there is wanted first
	Full   bool        // also what takes long; else it is left, and nothing may wait for it
}

// server is one run of Serve.
type server struct {
	cfg    Config
	editor *writer
	docs   *documents
	wake   chan struct{} // has one element when something changed since the last check

	mu      sync.Mutex // guards what follows
	other   *queue     // nil when there is no other server, or not any more
	waiting map[string]json.RawMessage
}

// Serve serves an editor until it says exit, or its messages end. It errs when ctx is done
// or the editor breaks off.
func Serve(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithCancel(ctx)
	s := &server{cfg: cfg, editor: &writer{out: cfg.Out}, docs: newDocuments(), wake: make(chan struct{}, 1), waiting: map[string]json.RawMessage{}}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	if len(cfg.Other) > 0 {
		stop, err := s.start(ctx, &wg)
		if err != nil {
			return err
		}
		defer stop()
	}
	wg.Go(func() { s.check(ctx) })
	messages, broken := make(chan *message), make(chan error, 1)
	go func() { // reading cannot be interrupted: it ends with In, perhaps after Serve
		in := bufio.NewReader(cfg.In)
		for {
			m, err := readMessage(in)
			if err != nil {
				broken <- err
				return
			}
			select {
			case messages <- m:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-broken:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read from the editor: %w", err)
		case m := <-messages:
			if err := s.fromEditor(m); err != nil || m.Method == "exit" {
				return err
			}
		}
	}
}

// start starts the other server; stop lets it end.
func (s *server) start(ctx context.Context, wg *sync.WaitGroup) (stop func(), err error) {
	cmd := exec.CommandContext(ctx, s.cfg.Other[0], s.cfg.Other[1:]...)
	cmd.Env = os.Environ()
	cmd.Stderr = s.cfg.Log
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	other := newQueue()
	s.other = other
	wg.Go(func() { other.run(ctx, &writer{out: in}) })
	wg.Go(func() {
		r := bufio.NewReader(out)
		for {
			m, err := readMessage(r)
			if err != nil {
				break
			}
			if s.fromOther(m) != nil {
				break
			}
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		s.alone()
	})
	return func() { _ = in.Close() }, nil
}

// alone goes on without the other server: what it was asked has no answer.
func (s *server) alone() {
	s.mu.Lock()
	waiting := s.waiting
	s.other, s.waiting = nil, map[string]json.RawMessage{}
	s.mu.Unlock()
	for _, id := range waiting {
		_ = s.refuse(id, "the language server of CUE has ended")
	}
}

// methodNotFound is the code of JSON-RPC for what a server does not know.
const methodNotFound = -32601

func (s *server) refuse(id json.RawMessage, why string) error {
	return s.editor.send(map[string]any{"id": id, "error": map[string]any{"code": methodNotFound, "message": why}})
}

// pass gives a message to the other server, and reports whether there is one. It does not wait until that
// has read it: the other may be busy, or have to be rid of answers first.
func (s *server) pass(m *message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.other == nil {
		return false
	}
	if len(m.ID) > 0 && m.Method != "" {
		s.waiting[string(m.ID)] = m.ID
	}
	s.other.add(m.raw)
	return true
}

// fromEditor handles a message of the editor.
func (s *server) fromEditor(m *message) error {
	if s.docs.note(m) {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
	if s.pass(m) || len(m.ID) == 0 {
		return nil
	}
	switch m.Method {
	case "":
		return nil // an answer to nobody
	case "initialize":
		return s.editor.send(map[string]any{"id": m.ID, "result": map[string]any{
			"capabilities": map[string]any{"textDocumentSync": syncAll},
			"serverInfo":   map[string]any{"name": "muster", "version": s.cfg.Version},
		}})
	case "shutdown":
		return s.editor.send(map[string]any{"id": m.ID, "result": nil})
	}
	return s.refuse(m.ID, "only the language server of CUE does this, and there is none: install cue")
}

// syncAll asks for documents as they are opened, changed in part, saved and closed.
var syncAll = map[string]any{"openClose": true, "change": 2, "save": true}

// fromOther handles a message of the other server: its mistakes are ours, in other words.
func (s *server) fromOther(m *message) error {
	if m.Method == "textDocument/publishDiagnostics" {
		var p struct{ URI string }
		if err := json.Unmarshal(m.Params, &p); err == nil && rootOf(pathOf(p.URI)) != "" {
			return nil
		}
	}
	if m.Method == "" && len(m.ID) > 0 {
		s.mu.Lock()
		delete(s.waiting, string(m.ID))
		s.mu.Unlock()
	}
	return s.editor.raw(m.raw)
}
