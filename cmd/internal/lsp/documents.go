package lsp

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// documents are the open documents of the editor.
type documents struct {
	mu     sync.Mutex // guards what follows
	text   map[string][]byte
	typing bool            // the last message was of a change that is not saved
	edited map[string]bool // documents that a message was of since now was asked for
}

func newDocuments() *documents {
	return &documents{text: map[string][]byte{}, edited: map[string]bool{}}
}

// edit is a change of a document: of a range, or of all.
type edit struct {
	Range *span  `json:"range"`
	Text  string `json:"text"`
}

// note takes what a message says of documents, and reports whether it does.
func (d *documents) note(m *message) bool {
	var p struct {
		TextDocument struct {
			URI  string `json:"uri"`
			Text string `json:"text"`
		} `json:"textDocument"`
		ContentChanges []edit `json:"contentChanges"`
	}
	switch m.Method {
	case "textDocument/didOpen", "textDocument/didChange", "textDocument/didClose", "textDocument/didSave":
	case "workspace/didChangeWatchedFiles":
		d.mu.Lock()
		defer d.mu.Unlock()
		d.typing = false
		return true
	default:
		return false
	}
	if err := json.Unmarshal(m.Params, &p); err != nil {
		return false
	}
	name := pathOf(p.TextDocument.URI)
	if name == "" {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.typing, d.edited[name] = m.Method == "textDocument/didChange", true
	switch m.Method {
	case "textDocument/didOpen":
		d.text[name] = []byte(p.TextDocument.Text)
	case "textDocument/didClose":
		delete(d.text, name)
	case "textDocument/didChange":
		text, ok := d.text[name]
		if !ok {
			return true // it is not open, so nothing is known that could be changed
		}
		for _, e := range p.ContentChanges {
			text = e.apply(text)
		}
		d.text[name] = text
	}
	return true
}

func (e edit) apply(text []byte) []byte {
	if e.Range == nil {
		return []byte(e.Text)
	}
	from := offset(text, e.Range.Start)
	to := max(from, offset(text, e.Range.End))
	return slices.Concat(text[:from], []byte(e.Text), text[to:])
}

// open are the open documents at one time.
type open struct {
	text   map[string][]byte // by path
	edited map[string]bool   // those, also closed ones, that a message was of since the time before
	typing bool              // it was of a change that is not saved
}

// now returns the open documents.
func (d *documents) now() open {
	d.mu.Lock()
	defer d.mu.Unlock()
	edited := d.edited
	d.edited = map[string]bool{}
	return open{text: maps.Clone(d.text), edited: edited, typing: d.typing} // no text is changed in place
}

// again puts back what was edited before a check that was cancelled.
func (d *documents) again(edited map[string]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.Copy(d.edited, edited)
}

// rootOf returns the directory of the config repository that a file lies in: the nearest
// one above that is a module of CUE and has the definitions of muster; "" for none.
func rootOf(name string) string {
	if name == "" {
		return ""
	}
	for at := filepath.Dir(name); ; at = filepath.Dir(at) {
		module, err := os.ReadFile(filepath.Join(at, "cue.mod", "module.cue"))
		if err == nil && len(bytes.TrimSpace(module)) > 0 {
			if _, err := os.Stat(filepath.Join(at, "muster")); err == nil {
				return at
			}
			return ""
		}
		if at == filepath.Dir(at) {
			return ""
		}
	}
}
