package compile

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/stage"
)

// protocol is what a child says first, so that a parent that started another
// program notices.
const protocol = "muster-compile-4"

// requestBytes is the largest request a child reads.
const requestBytes = 1 << 30

// request is one package for a child.
type request struct {
	Dir    string `json:"dir"`
	Parent string `json:"parent,omitempty"`
	Limits Limits `json:"limits"`
	// Policies are the directories with policies; their files are among Files.
	Policies []string `json:"policies,omitempty"`
	// Test is the name of the test of the package to run: then the answer is what is wrong
	// with that. "" for none.
	Test string `json:"test,omitempty"`
	// Ask is what to answer of the package in place of its objects; nil for these.
	Ask   *question         `json:"ask,omitempty"`
	Names []string          `json:"names"` // of Files, in the order of their blobs
	Files map[string][]byte `json:"-"`
	// Heavy are where policies stand that were too much for other packages, and HeavyPart is by what the limits are
	// divided for these.
	Heavy     []schema.Position `json:"heavy,omitempty"`
	HeavyPart int               `json:"heavyPart,omitempty"`
	// stages are what of it the child is at; nil if nobody counts.
	stages *stage.Stages
	// Began is how many bytes the child had allocated when it began with this.
	Began uint64 `json:"-"`
}

// response is a child's answer: objects, or diagnostics.
type response struct {
	Objects     []object            `json:"objects,omitempty"`
	Diagnostics []schema.Diagnostic `json:"diagnostics,omitempty"`
	Sources     []FieldSource       `json:"sources,omitempty"`
	Definitions []string            `json:"definitions,omitempty"` // that the object has that is asked for, such as #params
	Given       json.RawMessage     `json:"given,omitempty"`       // the data of what is asked for, without defaults of the schema
	User        string              `json:"user,omitempty"`        // of the object that is asked for
	Unasked     string              `json:"unasked,omitempty"`     // a key of unasked: why there are no sources
	// Policies is how many policies the package declares, and PolicyPaths are those that
	// they name.
	Policies    int          `json:"policies,omitempty"`
	PolicyPaths []policyPath `json:"policyPaths,omitempty"`
	// Heap is what was alive in the child before this package, in bytes, 0 if that is
	// little.
	Heap uint64 `json:"heap"`
	// Used is the processor time that the package took, and Allocs how many bytes were allocated for
	// it, collected again or not.
	Used   time.Duration `json:"used"`
	Allocs int           `json:"allocs"`
}

// object is one declared object, checked, with its defaults.
type object struct {
	Kind   schema.Kind     `json:"kind"`
	Name   string          `json:"name"` // the key it is declared under
	Data   []byte          `json:"-"`    // canonical JSON, a blob
	Origin schema.Position `json:"origin"`
	// Names are where the names stand that valid.References finds in Data, in
	// its order.
	Names []schema.Position `json:"names,omitempty"`
	// Places are where the fields of valid.Placed stand, as far as it is known.
	Places map[string]schema.Position `json:"places,omitempty"`
}

// most returns the limits of the request, with the processor time of its package and its policies together.
func (req *request) most() Limits {
	l := req.Limits
	if len(req.Policies) > 0 {
		l.CPU *= 2
	}
	if len(req.Heavy) > 0 {
		l.CPU += req.Limits.CPU / time.Duration(max(1, req.HeavyPart))
	}
	return l
}

var (
	// errTooLarge says that a frame is larger than the reader allows.
	errTooLarge = errors.New("message is too large")
	errBlobs    = errors.New("message has another number of blobs than it says")
)

// A frame is a header, some JSON, and blobs, which are what is large and need
// no quoting: files one way, data the other. The header is the length of the
// JSON, the number of blobs and the length of each, as 32-bit numbers.

func writeFrame(w io.Writer, v any, blobs ...[]byte) error {
	meta, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %T: %w", v, err)
	}
	b := bufio.NewWriterSize(w, 64<<10)
	header := make([]byte, 0, 8+4*len(blobs))
	header = binary.BigEndian.AppendUint32(header, uint32(len(meta)))
	header = binary.BigEndian.AppendUint32(header, uint32(len(blobs)))
	for _, blob := range blobs {
		header = binary.BigEndian.AppendUint32(header, uint32(len(blob)))
	}
	for _, part := range slices.Concat([][]byte{header, meta}, blobs) {
		if _, err := b.Write(part); err != nil {
			return err
		}
	}
	return b.Flush()
}

// readFrame reads what writeFrame wrote, up to limit bytes. It returns io.EOF
// when there is no further frame and errTooLarge for a larger one.
func readFrame(r io.Reader, limit int, v any) (blobs [][]byte, err error) {
	var fixed [8]byte
	if _, err := io.ReadFull(r, fixed[:]); err != nil {
		return nil, err
	}
	size, n := int64(binary.BigEndian.Uint32(fixed[:])), int64(binary.BigEndian.Uint32(fixed[4:]))
	if size+4*n > int64(limit) {
		return nil, fmt.Errorf("%w: %d bytes and %d blobs, limit %d", errTooLarge, size, n, limit)
	}
	header := make([]byte, 4*n)
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, err
	}
	lengths := make([]int64, n)
	total := size + 4*n
	for i := range lengths {
		lengths[i] = int64(binary.BigEndian.Uint32(header[4*i:]))
		total += lengths[i]
	}
	if total > int64(limit) {
		return nil, fmt.Errorf("%w: %d bytes, limit %d", errTooLarge, total, limit)
	}
	all := make([]byte, total-4*n)
	if _, err := io.ReadFull(r, all); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(all[:size], v); err != nil {
		return nil, fmt.Errorf("decode %T: %w", v, err)
	}
	rest := all[size:]
	for _, l := range lengths {
		blobs = append(blobs, rest[:l:l])
		rest = rest[l:]
	}
	return blobs, nil
}

func writeRequest(w io.Writer, req request) error {
	req.Names = slices.Sorted(maps.Keys(req.Files))
	blobs := make([][]byte, len(req.Names))
	for i, name := range req.Names {
		blobs[i] = req.Files[name]
	}
	return writeFrame(w, req, blobs...)
}

func readRequest(r io.Reader) (req request, err error) {
	blobs, err := readFrame(r, requestBytes, &req)
	if err != nil {
		return request{}, err
	}
	if len(blobs) != len(req.Names) {
		return request{}, errBlobs
	}
	req.Files = make(map[string][]byte, len(blobs))
	for i, name := range req.Names {
		req.Files[name] = blobs[i]
	}
	return req, nil
}

func writeResponse(w io.Writer, resp response) error {
	blobs := make([][]byte, len(resp.Objects))
	for i := range resp.Objects {
		blobs[i] = resp.Objects[i].Data
	}
	return writeFrame(w, resp, blobs...)
}

func readResponse(r io.Reader, limit int) (resp response, err error) {
	blobs, err := readFrame(r, limit, &resp)
	if err != nil {
		return response{}, err
	}
	if len(blobs) != len(resp.Objects) {
		return response{}, errBlobs
	}
	for i := range resp.Objects {
		resp.Objects[i].Data = blobs[i]
	}
	return resp, nil
}

// policyPath is a path that a policy names, or another name in a package with policies of which it is not known there
// whether anything has it.
type policyPath struct {
	Path string          `json:"path"`
	At   schema.Position `json:"at"`
	// What is "" for a path of directories.
	What nameKind `json:"what,omitempty"`
	// Near is the name of the built-in priority which is perhaps meant, "" for none, and Severity that of the policy.
	Near     string          `json:"near,omitempty"`
	Severity schema.Severity `json:"severity,omitempty"`
}

// nameKind says what a name is of.
type nameKind string

const (
	nameOfPriority nameKind = "priority"   // that policies compare one with
	nameOfPolicies nameKind = "definition" // with policies, which another package may import
)
