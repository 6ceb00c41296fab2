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
	mu   sync.Mutex // guards text
	text map[string][]byte
}

func newDocuments() *documents { return &documents{text: map[string][]byte{}} }

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
	switch m.Method {
	case "textDocument/didOpen":
		d.text[name] = []byte(p.TextDocument.Text)
	case "textDocument/didClose":
		delete(d.text, name)
	case "textDocument/didChange":
		text := d.text[name]
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

// open returns the open documents by path.
func (d *documents) open() map[string][]byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.text) // no text is changed in place
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
