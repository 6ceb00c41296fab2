package compile

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/musterhq/muster/schema"
)

// protocol is what a child says first, so that a parent that started another
// program notices.
const protocol = "muster-compile-1"

// request is one package for a child.
type request struct {
	Dir    string            `json:"dir"`
	Parent string            `json:"parent,omitempty"`
	Files  map[string][]byte `json:"files"`
	Limits Limits            `json:"limits"`
}

// response is a child's answer: objects, or diagnostics.
type response struct {
	Objects     []object            `json:"objects,omitempty"`
	Diagnostics []schema.Diagnostic `json:"diagnostics,omitempty"`
	// Heap is what the last garbage collection in the child found alive, in
	// bytes.
	Heap uint64 `json:"heap"`
}

// object is one declared object, checked, with its defaults.
type object struct {
	Kind   schema.Kind     `json:"kind"`
	Name   string          `json:"name"` // the key it is declared under
	Data   json.RawMessage `json:"data"`
	Origin schema.Position `json:"origin"`
	// Names are where the names stand that valid.References finds in Data, in
	// its order.
	Names []schema.Position `json:"names,omitempty"`
}

// errTooLarge says that a frame is larger than the reader allows.
var errTooLarge = errors.New("message is too large")

// writeFrame writes v as JSON behind its length.
func writeFrame(w io.Writer, v any) error {
	b := bytes.NewBuffer(make([]byte, 4)) // the length goes here
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false) // or canonical data, which has it unescaped, would arrive changed
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("encode %T: %w", v, err)
	}
	frame := b.Bytes()
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	_, err := w.Write(frame)
	return err
}

// readFrame reads what writeFrame wrote, up to limit bytes. It returns io.EOF
// when there is no further frame and errTooLarge for a larger one.
func readFrame(r io.Reader, limit int, v any) error {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(size[:])
	if int64(n) > int64(limit) {
		return fmt.Errorf("%w: %d bytes, limit %d", errTooLarge, n, limit)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("decode %T: %w", v, err)
	}
	return nil
}
