package linkpb

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	"github.com/musterhq/muster/schema"
)

const (
	digestPrefix = "sha256:"
	markBytes    = 8
)

// MarkContent returns the mark of what a machine holds, by which both ends of a session know
// that they speak of the same. It is empty of a machine that holds nothing.
func MarkContent(content []schema.Digest) []byte {
	if len(content) == 0 {
		return nil
	}
	h := sha256.New()
	for _, d := range content {
		_, _ = h.Write([]byte(d)) // a hash takes everything
	}
	return h.Sum(nil)[:markBytes]
}

// EncodeContent returns the message of a change, without its mark. Digests that are no SHA-256
// are left out.
func EncodeContent(c *schema.ContentChange) *ContentChange {
	return &ContentChange{Whole: c.Whole, Added: encodeDigests(c.Added), Removed: encodeDigests(c.Removed)}
}

func encodeDigests(all []schema.Digest) [][]byte {
	var out [][]byte
	for _, d := range all {
		if len(d) != len(digestPrefix)+2*sha256.Size || d[:len(digestPrefix)] != digestPrefix {
			continue
		}
		if sum, err := hex.DecodeString(string(d[len(digestPrefix):])); err == nil {
			out = append(out, sum)
		}
	}
	return out
}

// Digests are those that were decoded, each kept once: thousands of machines hold the same.
// They may be used from any goroutine; the zero value is empty.
type Digests struct {
	mu  sync.Mutex // guards all
	all map[[sha256.Size]byte]schema.Digest
}

// mostDigests bounds those that are kept; one that is forgotten only takes memory twice.
const mostDigests = 1 << 16

// DecodeContent returns the change of a message. It errs for what is no digest, and for more
// than a machine says.
func (p *Digests) DecodeContent(m *ContentChange) (schema.ContentChange, error) {
	c := schema.ContentChange{Whole: m.GetWhole()}
	if n := max(len(m.GetAdded()), len(m.GetRemoved())); n > schema.MaxContent {
		return c, fmt.Errorf("content: %d digests in one change: at most %d are taken", n, schema.MaxContent)
	}
	var err error
	if c.Added, err = p.decode(m.GetAdded()); err != nil {
		return c, err
	}
	c.Removed, err = p.decode(m.GetRemoved())
	return c, err
}

func (p *Digests) decode(sums [][]byte) ([]schema.Digest, error) {
	if len(sums) == 0 {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil || len(p.all) > mostDigests {
		p.all = map[[sha256.Size]byte]schema.Digest{}
	}
	out := make([]schema.Digest, 0, len(sums))
	for _, b := range sums {
		if len(b) != sha256.Size {
			return nil, fmt.Errorf("content: a digest of %d bytes: want %d", len(b), sha256.Size)
		}
		sum := [sha256.Size]byte(b)
		d, ok := p.all[sum]
		if !ok {
			d = schema.Digest(digestPrefix + hex.EncodeToString(b))
			p.all[sum] = d
		}
		out = append(out, d)
	}
	return out, nil
}
