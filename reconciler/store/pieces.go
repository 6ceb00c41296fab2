package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/reconciler/failpoint"
	"github.com/musterhq/muster/schema"
)

// The envelope of a stored value: its format, its form, and the release that
// wrote it, which ends in a newline. Every later format begins like that, so
// that whoever cannot read it knows whom to ask.
const (
	format     = '2'
	formatBare = '1' // names no release; read, and not written any more
	formData   = 'd'
	formPieces = 'p'
)

// pieceSize leaves room in etcd's 1.5 MiB for the rest of the request.
const pieceSize = 1 << 20

// piece is a part of a document that is too large for one value.
type piece struct {
	Digest string `json:"digest"` // sha256 of the part, in hex
	Size   int    `json:"size"`
}

func (s *Store) encode(form byte, doc []byte) []byte { return encode(s.release, form, doc) }

func encode(release string, form byte, doc []byte) []byte {
	return slices.Concat([]byte{format, form}, []byte(release), []byte{'\n'}, doc)
}

func (s *Store) encodePieces(parts []piece) []byte {
	list, err := json.Marshal(parts)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return s.encode(formPieces, list)
}

// NewerError refuses what a later release wrote in a way that this one cannot
// read.
type NewerError struct {
	What    string // "document \"head\""
	Format  int
	Release string // that wrote it, "" if it is not known
}

// Error says who wrote it, and on a second line what to do.
func (e *NewerError) Error() string { return e.Hinted().Error() }

// Hinted takes the two apart.
func (e *NewerError) Hinted() *schema.HintedError {
	by, start := "a later release", "the release that wrote it"
	if e.Release != "" {
		by, start = "muster "+e.Release, "muster "+e.Release
	}
	return schema.Hintf(fmt.Sprintf("start %s or a later one, or restore a snapshot of before", start),
		"%s was written by %s in format %d, and this release reads formats up to %d", e.What, by, e.Format, format-'0')
}

// decode takes the envelope off; what is for errors.
func decode(what string, value []byte) (form byte, doc []byte, err error) {
	if len(value) < 2 {
		return 0, nil, fmt.Errorf("%s: stored value of %d bytes has no envelope", what, len(value))
	}
	form, doc = value[1], value[2:]
	if value[0] != formatBare {
		release, rest, ok := bytes.Cut(doc, []byte{'\n'})
		switch {
		case value[0] > format:
			if !ok || len(release) > maxRelease {
				release = nil
			}
			return 0, nil, &NewerError{what, int(value[0]) - '0', string(release)}
		case value[0] != format || !ok:
			return 0, nil, fmt.Errorf("%s: stored value has no envelope", what)
		}
		doc = rest
	}
	if form != formData && form != formPieces {
		return 0, nil, fmt.Errorf("%s: stored in unknown form %q", what, form)
	}
	return form, doc, nil
}

// maxRelease is the longest name of a release, in bytes.
const maxRelease = 100

// ledger counts which pieces are named by which documents. The zero ledger
// knows nothing: pieces are then written again and none is removed.
type ledger struct {
	docs map[string][]piece // by key; only documents in pieces
	refs map[string]int     // by digest; 0: stored, but named by no document
}

func newLedger() ledger {
	return ledger{docs: map[string][]piece{}, refs: map[string]int{}}
}

func (l ledger) known() bool { return l.refs != nil }

// set says that the document at key now has these pieces (none: it is whole or
// deleted).
func (l ledger) set(key string, parts []piece) {
	if !l.known() {
		return
	}
	for _, p := range l.docs[key] {
		l.refs[p.Digest]--
	}
	delete(l.docs, key)
	if len(parts) == 0 {
		return
	}
	l.docs[key] = parts
	for _, p := range parts {
		l.refs[p.Digest]++
	}
}

// writePieces stores value in pieces, each in a fenced transaction of its own.
func (s *Store) writePieces(ctx context.Context, value []byte) ([]piece, error) {
	var parts []piece
	for part := range slices.Chunk(value, pieceSize) {
		sum := sha256.Sum256(part)
		p := piece{Digest: hex.EncodeToString(sum[:]), Size: len(part)}
		parts = append(parts, p)
		if _, there := s.pieces.refs[p.Digest]; there {
			continue
		}
		if err := s.fenced(ctx, failpoint.StorePiece, []op{{s.piecePrefix() + p.Digest, s.encode(formData, part)}}); err != nil {
			return nil, err
		}
		if s.pieces.known() {
			s.pieces.refs[p.Digest] = 0
		}
	}
	return parts, nil
}

// sweep removes pieces that no document names. Its errors are not reported:
// what it was called after did succeed, what it left is swept after the next
// Load, and lost leadership shows at Lost.
func (s *Store) sweep(ctx context.Context) {
	var ops []op
	for _, digest := range slices.Sorted(maps.Keys(s.pieces.refs)) {
		if s.pieces.refs[digest] == 0 {
			ops = append(ops, op{key: s.piecePrefix() + digest})
		}
	}
	for batch := range slices.Chunk(ops, maxOps) {
		if s.fenced(ctx, failpoint.StoreSweep, batch) != nil {
			return
		}
		for _, o := range batch {
			delete(s.pieces.refs, strings.TrimPrefix(o.key, s.piecePrefix()))
		}
	}
}

// load reads all documents and puts those in pieces together.
func (s *Store) load(ctx context.Context) (map[string][]byte, ledger, error) {
	docs, led := map[string][]byte{}, newLedger()
	err := s.be.scan(ctx, s.docPrefix(), func(key string, value []byte) error {
		key = strings.TrimPrefix(key, s.docPrefix())
		form, doc, err := decode(fmt.Sprintf("document %q", key), value)
		if err != nil {
			return err
		}
		if form == formData {
			docs[key] = doc
			return nil
		}
		var parts []piece
		if err := json.Unmarshal(doc, &parts); err != nil {
			return fmt.Errorf("document %q: list of pieces: %w", key, err)
		}
		led.set(key, parts)
		return nil
	})
	if err != nil {
		return nil, led, err
	}
	stored, err := s.readPieces(ctx)
	if err != nil {
		return nil, led, err
	}
	for key, parts := range led.docs {
		if docs[key], err = join(parts, stored); err != nil {
			return nil, led, fmt.Errorf("document %q: %w", key, err)
		}
	}
	for digest := range stored {
		led.refs[digest] += 0 // what nobody names is swept after the next Commit
	}
	return docs, led, nil
}

func (s *Store) readPieces(ctx context.Context) (map[string][]byte, error) {
	stored := map[string][]byte{}
	err := s.be.scan(ctx, s.piecePrefix(), func(key string, value []byte) error {
		digest := strings.TrimPrefix(key, s.piecePrefix())
		_, part, err := decode("piece "+digest, value)
		if err != nil {
			return err
		}
		if sum := sha256.Sum256(part); hex.EncodeToString(sum[:]) != digest {
			return fmt.Errorf("piece %s is damaged: its content has another digest", digest)
		}
		stored[digest] = part
		return nil
	})
	return stored, err
}

func join(parts []piece, stored map[string][]byte) ([]byte, error) {
	var doc []byte
	for _, p := range parts {
		part, there := stored[p.Digest]
		if !there || len(part) != p.Size {
			return nil, fmt.Errorf("piece %s of %d bytes is not in the store", p.Digest, p.Size)
		}
		doc = append(doc, part...)
	}
	return doc, nil
}
