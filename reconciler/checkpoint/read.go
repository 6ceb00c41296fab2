package checkpoint

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/parallel"
	"github.com/musterhq/muster/schema"
)

// maxBytes bounds what is read of a checkpoint, unpacked: some 100 times the cell of 10,000
// machines and 100,000 tasks.
const maxBytes = 8 << 30

// Cell is what a checkpoint holds.
type Cell struct {
	Header
	State    *model.State
	Machines []model.SavedMachine // by name
}

// errCut says that a checkpoint ends before its end.
var errCut = errors.New("it ends too early: it was not written or copied to its end")

// magic is how what zstd has compressed begins (RFC 8878, section 3.1.1).
const magic = "\x28\xb5\x2f\xfd"

// errOther says that a file is something else.
func errOther() error {
	return schema.Hintf("`muster checkpoint save` writes one", "it is no checkpoint of muster")
}

// Read reads a checkpoint. It errs if r has none, one that is damaged or cut short, or one
// of a later format.
func Read(r io.Reader) (*Cell, error) {
	from := bufio.NewReader(r)
	if first, err := from.Peek(len(magic)); errors.Is(err, io.EOF) && !strings.HasPrefix(magic, string(first)) {
		return nil, errOther() // zstd would say that it ends too early
	}
	z, err := zstd.NewReader(from)
	if err != nil {
		return nil, err
	}
	defer z.Close()
	lines := lineReader{from: io.LimitReader(z, maxBytes+1)}
	c := &Cell{}
	first, err := lines.next()
	if errors.Is(err, zstd.ErrMagicMismatch) || errors.Is(err, io.EOF) {
		return nil, errOther()
	} else if err != nil {
		return nil, unread(err)
	}
	if err := c.Header.read(first); err != nil {
		return nil, err
	}
	return c, c.read(&lines)
}

// unread says why the next line cannot be read.
func unread(err error) error {
	switch {
	case errors.Is(err, errTooMuch):
		return err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return again(errCut)
	}
	return again(fmt.Errorf("it is damaged: %w", err))
}

// again says to make another checkpoint.
func again(err error) error {
	return schema.Hintf("save it again with `muster checkpoint save`, or take an earlier one", "%w", err)
}

// read takes the first line.
func (h *Header) read(first []byte) error {
	if err := json.Unmarshal(first, h); err != nil || h.Format != Format {
		return errOther()
	}
	if h.Version > Version || h.Version < 1 {
		return schema.Hintf(fmt.Sprintf("use muster %s or later", h.Release),
			"it has version %d of the format, and this release reads up to %d", h.Version, Version)
	}
	return nil
}

// read takes all lines but the first. Documents and machines, which are about as much, are
// decoded side by side.
func (c *Cell) read(from *lineReader) error {
	docs := make(map[string][]byte)
	var machines [][]byte
	lines, ended := 1, false
	for !ended {
		line, err := from.next()
		if err != nil {
			return unread(err)
		}
		kind, value, _ := bytes.Cut(line, []byte(" "))
		switch string(kind) {
		case lineDocument:
			key, doc, _ := bytes.Cut(value, []byte(" "))
			docs[string(key)] = doc
		case lineMachine:
			machines = append(machines, value)
		case lineEnd:
			n, err := strconv.Atoi(string(value))
			_, more := from.next()
			if err != nil || n != lines || more == nil {
				return again(errors.New("it is damaged: its lines are not as many as it says"))
			} else if !errors.Is(more, io.EOF) {
				return unread(more)
			}
			ended = true
		default: // of a later release, which has left the version as it is
		}
		lines++
	}
	var wg sync.WaitGroup
	var stored, seen error
	wg.Go(func() { c.State, stored = model.Load(c.Cell, docs, parallel.Calls(runtime.GOMAXPROCS(0))) })
	wg.Go(func() {
		c.Machines = make([]model.SavedMachine, len(machines))
		for i, line := range machines {
			if _, err := schema.Decode(line, &c.Machines[i]); err != nil && seen == nil {
				seen = fmt.Errorf("machine %d: %w", i+1, err)
			}
		}
	})
	wg.Wait()
	if err := errors.Join(stored, seen); err != nil {
		return again(fmt.Errorf("it is damaged: %w", err))
	}
	return nil
}

// Observed returns what the cell's master knew of its machines.
func (c *Cell) Observed() *model.Observed {
	o := model.ObservedOf(c.Machines, c.Since)
	if d := c.LostAfter(); d >= model.MinLostAfter {
		o.LostAfter = d
	}
	return o
}
