package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
)

// repository is where an image is pulled from.
type repository struct {
	client *client
	hosts  []host // asked in this order
	name   string
	exact  *url.URL // if set, what is pulled is there, and in no registry
	search *search  // for other machines that have it; nil: only the hosts are asked
}

// get asks a host for what has a path in the repository.
func (r repository) get(ctx context.Context, h host, path string, header http.Header) (*http.Response, error) {
	return r.client.get(ctx, h, ask{repo: r.name, path: path, header: header, exact: r.exact})
}

// small reads a manifest or a configuration of at most limit bytes, whole and of its
// digest, from the first host that has it.
func (r repository) small(ctx context.Context, path string, sum digest.Digest, limit int64) ([]byte, error) {
	var others []string
	for i, h := range r.hosts {
		b, err := r.smallFrom(ctx, h, path, sum, limit)
		if err == nil {
			return b, nil
		}
		if i == len(r.hosts)-1 || !elsewhere(err) {
			return nil, after(others, err)
		}
		others = append(others, err.Error())
	}
	return nil, fail(ErrUnavailable, r.name, "no host has it")
}

// after adds to an error what was tried before.
func after(others []string, err error) error {
	if err == nil || len(others) == 0 {
		return err
	}
	return fmt.Errorf("%w (before: %s)", err, strings.Join(others, "; "))
}

// manifestTypes are the forms of manifests that are read, most liked first.
const manifestTypes = typeIndex + ", " + typeManifest + ", " + typeDockerList + ", " + typeDockerManifest

func (r repository) smallFrom(ctx context.Context, h host, path string, sum digest.Digest, limit int64) ([]byte, error) {
	of := h.registry + "/" + r.name + ", " + path + "/" + sum.String()
	header := http.Header{}
	if path == "manifests" {
		header.Set("Accept", manifestTypes)
	}
	res, err := r.get(ctx, h, path+"/"+sum.String(), header)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	var known *failure
	switch {
	case errors.As(err, &known) || err != nil && ctx.Err() != nil:
		return nil, err
	case err != nil:
		return nil, fail(ErrUnavailable, of, "%w", err)
	case int64(len(b)) > limit:
		return nil, fail(ErrInvalid, of, "it has more than %d bytes", limit)
	}
	if got := digest.FromBytes(b); got != sum {
		return nil, fail(ErrDigest, of, "what came has the digest %s (%d bytes)", got, len(b))
	}
	return b, nil
}

// How often a blob is asked for again where it broke off: some times, and once more
// for each resumeBytes that came.
const (
	mostResumes = 5
	resumeBytes = 16 << 20
)

// blob reads a blob from a repository. When a connection breaks it goes on with
// another, from where it was, and with the next host when one gives no more. It is for
// one goroutine, and must be closed.
type blob struct {
	repository

	sum    digest.Digest
	size   int64 // -1: not known yet
	limit  int64 // of bytes, if the size is not known
	offset int64
	body   io.ReadCloser
	came   int64 // over this connection
	ended  error // with which the connection ended that b.body was
	resume int64 // how often it was asked for again
	others []string
	peer   bool // body is another machine's
}

// read is io.Reader's Read. Errors are those of Ensure.
func (b *blob) read(ctx context.Context, p []byte) (int, error) {
	for b.offset != b.size {
		if err := b.ended; err != nil {
			if b.ended, err = nil, b.broken(ctx, err); err != nil {
				return 0, err
			}
		}
		if b.body == nil {
			if err := b.open(ctx); err != nil {
				if err := b.next(err); err != nil {
					return 0, err
				}
				continue
			}
		}
		n, err := b.receive(p)
		b.ended = err
		if b.size < 0 && b.offset > b.limit {
			return 0, fail(ErrInvalid, b.of(), "it has more than %d bytes", b.limit)
		}
		if n > 0 {
			return n, nil
		}
	}
	return 0, io.EOF
}

// receive reads from the connection, which is closed when it has ended.
func (b *blob) receive(p []byte) (int, error) {
	if b.size >= 0 {
		p = p[:min(int64(len(p)), b.size-b.offset)]
	}
	n, err := b.body.Read(p)
	if !b.peer {
		b.client.traffic.Add(int64(n))
		b.search.progress(b.sum, n)
	}
	b.offset += int64(n)
	b.came += int64(n)
	if b.size < 0 && errors.Is(err, io.EOF) {
		b.size = b.offset
	}
	if err != nil {
		b.close()
	}
	return n, err
}

func (b *blob) of() string {
	return b.hosts[0].registry + "/" + b.name + ", blob " + b.sum.String()
}

// open asks other machines, or else the first host, for what was not read yet.
func (b *blob) open(ctx context.Context) error {
	other, err := b.search.open(ctx, b.sum, b.offset, b.size)
	if err != nil {
		return err
	}
	if b.peer = other != nil; b.peer {
		if b.body, b.came = other, 0; b.size < 0 {
			b.size = other.size
		}
		return nil
	}
	return b.openHost(ctx)
}

// openHost is open for a host.
func (b *blob) openHost(ctx context.Context) error {
	header := http.Header{}
	if b.offset > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", b.offset))
	}
	res, err := b.get(ctx, b.hosts[0], "blobs/"+b.sum.String(), header) //nolint:bodyclose // close does
	if err != nil {
		return err
	}
	b.body, b.came = res.Body, 0
	if b.size < 0 && b.offset == 0 && res.ContentLength >= 0 {
		b.size = res.ContentLength
	}
	skip := b.offset
	if res.StatusCode == http.StatusPartialContent {
		var from int64
		if n, err := fmt.Sscanf(res.Header.Get("Content-Range"), "bytes %d-", &from); n != 1 || err != nil || from != b.offset {
			b.close()
			return fail(ErrUnavailable, b.of(), "asked for the bytes from %d, it sends %.60q", b.offset, res.Header.Get("Content-Range"))
		}
		skip = 0
	}
	if _, err := io.CopyN(io.Discard, b.body, skip); err != nil { // it knows no ranges
		b.close()
		return b.meaning(ctx, err)
	}
	return nil
}

// meaning returns the error of a connection that broke.
func (b *blob) meaning(ctx context.Context, err error) error {
	var f *failure
	if errors.As(err, &f) {
		return err
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fail(ErrUnavailable, b.of(), "after %d of %d bytes: %w", b.offset, b.size, err)
}

// broken decides what follows a connection that ended too early: nil if it goes on.
func (b *blob) broken(ctx context.Context, err error) error {
	err = b.meaning(ctx, err)
	if !elsewhere(err) {
		return err
	}
	if b.peer { // which is not asked again
		return nil
	}
	if _, slow := errors.AsType[*slowError](err); slow && b.hosts[0].floor > b.client.floor {
		b.putLast(err)
		return nil
	}
	if b.came > 0 && b.resume < mostResumes+b.offset/resumeBytes {
		b.resume++
		return nil
	}
	return b.next(err)
}

// putLast has the first host asked after all others, and then with more patience: better a slow
// one than none.
func (b *blob) putLast(err error) {
	b.others = append(b.others, err.Error())
	h := b.hosts[0]
	h.floor = b.client.floor
	b.hosts = append(slices.Clone(b.hosts[1:]), h)
}

// next goes on with the next host, or returns the error.
func (b *blob) next(err error) error {
	if !elsewhere(err) || len(b.hosts) == 1 {
		return after(b.others, err)
	}
	b.others = append(b.others, err.Error())
	b.hosts = b.hosts[1:]
	return nil
}

func (b *blob) close() {
	if b.body != nil {
		_ = b.body.Close()
		b.body = nil
	}
}

// readFunc is a function as a reader.
type readFunc func(p []byte) (int, error)

// Read implements io.Reader.
func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// summed hashes what is read.
type summed struct {
	r    io.Reader
	hash interface {
		io.Writer
		Sum(b []byte) []byte
	}
}

func newSummed(r io.Reader) *summed { return &summed{r: r, hash: sha256.New()} }

// Read implements io.Reader.
func (s *summed) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	_, _ = s.hash.Write(p[:n]) // a hash takes everything
	return n, err
}

func (s *summed) sum() digest.Digest {
	return digest.NewDigestFromBytes(digest.SHA256, s.hash.Sum(nil))
}

// Beginnings of compressed streams.
var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

func isGzip(b []byte) bool { return bytes.HasPrefix(b, gzipMagic) }
func isZstd(b []byte) bool { return bytes.HasPrefix(b, zstdMagic) }
