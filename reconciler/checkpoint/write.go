package checkpoint

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// The first words of the lines after the header: a document with its key, a machine, and
// the end with how many lines came before it.
const (
	lineDocument = "doc"
	lineMachine  = "machine"
	lineEnd      = "end"
)

// Write writes a cell as a checkpoint. h is its header; with a Redaction no values are
// written. Neither s nor o may be written to meanwhile.
func Write(w io.Writer, h Header, s *model.State, o *model.Observed) error {
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return fmt.Errorf("checkpoint of cell %s: %w", h.Cell, err)
	}
	out := &writer{to: bufio.NewWriter(z), digests: map[string]string{}}
	out.cell(h, s, o)
	out.line(lineEnd, fmt.Sprint(out.lines))
	if out.err == nil {
		out.err = out.to.Flush()
	}
	if err := z.Close(); out.err == nil {
		out.err = err
	}
	if out.err != nil {
		return fmt.Errorf("checkpoint of cell %s: %w", h.Cell, out.err)
	}
	return nil
}

// writer writes lines; the first error is kept.
type writer struct {
	to      *bufio.Writer
	digests map[string]string // by what a digest was before values were replaced: what it is now
	lines   int
	err     error
}

func (w *writer) line(parts ...string) {
	for i, p := range parts {
		if i > 0 {
			w.write(" ")
		}
		w.write(p)
	}
	w.write("\n")
	w.lines++
}

func (w *writer) write(s string) {
	if w.err == nil {
		_, w.err = w.to.WriteString(s)
	}
}

func (w *writer) json(v any) string {
	b, err := json.Marshal(v)
	if err != nil && w.err == nil {
		w.err = err
	}
	return string(b)
}

func (w *writer) cell(h Header, s *model.State, o *model.Observed) {
	h.Format, h.Version = Format, Version
	w.line(w.json(h))
	r := NewRedactor(h.Redaction)
	if r != nil {
		w.redigest(s, r)
	}
	for doc := range model.DocumentsOf(s) {
		key, value := doc.Key, doc.Value
		kind, name, _ := strings.Cut(key, "/")
		switch {
		case r == nil:
		case key == model.KeyHead:
			value = s.Document(key, r.Head(s.Head)).Value
		case kind+"/" == model.KeyData:
			value = schema.Canonical(r.Job(s.Data[schema.Digest(name)]))
		case kind+"/" == model.KeyPackage:
			value = schema.Canonical(r.Package(s.Packages[schema.Digest(name)]))
		}
		w.document(key, value)
		if w.err != nil {
			return
		}
	}
	for m := range model.SavedOf(o) {
		w.line(lineMachine, w.renamed(w.json(m)))
		if w.err != nil {
			return
		}
	}
}

// document writes a document. A value may be tens of megabytes.
func (w *writer) document(key string, value []byte) {
	if len(w.digests) > 0 {
		w.line(lineDocument, w.renamed(key), w.renamed(string(value)))
		return
	}
	w.write(lineDocument + " " + key + " ")
	if w.err == nil {
		_, w.err = w.to.Write(value)
	}
	w.write("\n")
	w.lines++
}

// redigest finds out which digests change with values that are replaced: those of data, of
// packages, and of what tasks run.
func (w *writer) redigest(s *model.State, r *Redactor) {
	for d, j := range s.Data {
		is := r.Job(j)
		w.digests[string(d)] = string(schema.DigestOf(is))
		w.digests[string(j.Task.RunDigest())] = string(is.Task.RunDigest())
	}
	for d, p := range s.Packages {
		w.digests[string(d)] = string(schema.DigestOf(r.Package(p)))
	}
	for was, is := range w.digests {
		if was == is {
			delete(w.digests, was)
		}
	}
}

// digestLength is that of a schema.Digest.
const digestLength = len("sha256:") + 64

// renamed returns text with the digests of what values were replaced in.
func (w *writer) renamed(text string) string {
	if len(w.digests) == 0 || !strings.Contains(text, "sha256:") {
		return text
	}
	var b bytes.Buffer
	for {
		i := strings.Index(text, "sha256:")
		if i < 0 || len(text) < i+digestLength {
			b.WriteString(text)
			return b.String()
		}
		digest := text[i : i+digestLength]
		b.WriteString(text[:i])
		if is, ok := w.digests[digest]; ok {
			b.WriteString(is)
			text = text[i+digestLength:]
			continue
		}
		b.WriteString("sha256:")
		text = text[i+len("sha256:"):]
	}
}
