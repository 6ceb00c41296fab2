package image

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"
)

// staged is a layer that is unpacked, and not in its place yet if lower layers decide
// something of it.
type staged struct {
	mu    sync.Mutex // guards taken
	taken bool

	dir string
	u   *unpacker
}

// take reports whether the caller is the first that asks.
func (st *staged) take() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	first := !st.taken
	st.taken = true
	return first
}

// discard removes a layer that nobody takes.
func (s *Store) discard(st *staged) {
	if !st.u.needs() || !st.take() {
		return
	}
	if err := s.drop(st, nil); err != nil {
		s.cfg.Log.Warn("cannot remove an unpacked layer whose callers have left; the next start does", "dir", st.dir, "err", err)
	}
}

// Names of layers: of those that are the same in each image, and of those that depend
// on what is below them.
func independentName(diff digest.Digest) string { return diff.Encoded() }
func chainedName(chain digest.Digest) string    { return "chain-" + chain.Encoded() }

// pin returns a layer of the store that l is, if it has one, and keeps it from being
// collected until unpin.
func (s *Store) pin(l layerOf) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range []string{independentName(l.diff), chainedName(l.chain)} {
		if have := s.layers[name]; have != nil {
			have.pins++
			return name, true
		}
	}
	return "", false
}

func (s *Store) unpin(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		if name != "" {
			s.layers[name].pins--
		}
	}
}

// pull unpacks a layer into a directory of its own, and keeps it if it is whole by
// itself.
func (s *Store) pull(ctx context.Context, from repository, l layerOf, into unpackInto) (*staged, error) {
	var others []string
	for {
		st, err := s.pullLayer(ctx, from, l, into)
		if err != nil && suspect(err) && from.search.blame(l.sum) {
			continue // without those who sent it
		}
		if err == nil || !errors.Is(err, ErrDigest) || len(from.hosts) == 1 {
			return st, after(others, err)
		}
		others = append(others, err.Error())
		from.hosts = from.hosts[1:]
	}
}

func (s *Store) pullLayer(ctx context.Context, from repository, l layerOf, into unpackInto) (*staged, error) {
	of := from.name + ", layer " + l.sum.String()
	dir, err := os.MkdirTemp(s.path(tempDir), "layer-")
	if err != nil {
		return nil, disk(of, err)
	}
	into.dir, into.of = dir, of
	u, err := s.unpackBlob(ctx, from, l, into)
	if err == nil && !u.follows && !u.needs() {
		err = s.keep(dir, u, l.diff, independentName(l.diff))
		u.tree.close()
	}
	if err != nil {
		into.budget.giveBack(u.bytes, u.entries)
		return nil, errors.Join(err, s.bin.Put(dir))
	}
	return &staged{dir: dir, u: u}, nil
}

// unpackInto is where something is unpacked.
type unpackInto struct {
	dir    string
	of     string
	budget *budget
	plain  bool
	lower  []string // layers whose symbolic links are followed, as unpacker.follow has them
}

// unpackBlob reads a blob and unpacks it, both digests being checked. The unpacker is
// returned in any case: it has what was charged to the budget.
func (s *Store) unpackBlob(ctx context.Context, from repository, l layerOf, into unpackInto) (*unpacker, error) {
	root := filepath.Join(into.dir, rootName)
	u := newUnpacker(into.of, into.budget)
	u.plain = into.plain
	if err := os.Mkdir(root, 0o755); err != nil {
		return u, disk(into.of, err)
	}
	if err := os.Chmod(root, 0o755); err != nil {
		return u, disk(into.of, err)
	}
	t, err := openTree(root)
	if err != nil {
		return u, disk(into.of, err)
	}
	u.on(t)
	if len(into.lower) > 0 {
		end, err := u.follow(into.lower)
		if err != nil {
			t.close()
			return u, err
		}
		defer end()
	}
	err = s.stream(ctx, from, l, u)
	if err != nil {
		t.close()
	}
	return u, err
}

// stream is a layer on its way: from the network, through both hashes and what
// decompresses it, into the unpacker. Each runs at the same time.
func (s *Store) stream(ctx context.Context, from repository, l layerOf, u *unpacker) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	net := &blob{repository: from, sum: l.sum, size: l.size, limit: s.cfg.MaxImageBytes}
	whole, kept := false, s.copies.begin(l.sum)
	defer func() {
		kept.end(whole, s.cfg.Now())
		from.search.end(l.sum, whole && s.copies.has(l.sum))
	}()
	var own *os.File
	if u.follows { // it was here a moment ago
		if own, _, _ = s.copies.find(l.sum, s.cfg.Now()); own != nil {
			net.body, net.peer = own, true
		}
	}
	packed := newSummed(readFunc(func(p []byte) (int, error) {
		n, err := net.read(ctx, p)
		kept.write(p[:n])
		return n, err
	}))
	first := newAhead(packed)
	defer func() { // in this order: nobody uses the connection any more
		cancel()
		first.close()
		net.close()
	}()
	err := s.decompress(ctx, first, l, u)
	var known *failure
	if err != nil && (ctx.Err() != nil || errors.As(err, &known) && !errors.Is(err, ErrInvalid) || !errors.As(err, &known)) {
		return err
	}
	// Whether it is what the digest says is worth more than what is wrong with it.
	limit := int64(largestDrain)
	if err == nil {
		limit = max(l.size, s.cfg.MaxImageBytes)
	}
	n, failed := io.CopyN(io.Discard, first, limit)
	if failed == nil && n == limit {
		_, failed = first.Read(make([]byte, 1))
	}
	if !errors.Is(failed, io.EOF) {
		if err == nil {
			err = failed
		}
		return err
	}
	if got := packed.sum(); got != l.sum {
		if own != nil {
			s.copies.remove(l.sum)
		}
		return fail(ErrDigest, u.of, "what came has the digest %s", got)
	}
	whole = true
	from.search.trust(l.sum) // whatever is wrong with it
	return err
}

// largestDrain bounds how much of a blob is read that is found to be wrong, in bytes.
const largestDrain = 64 << 20

// largestWindow bounds the memory that a zstd stream may ask for, in bytes: enough for
// zstd -19, and not for --long.
const largestWindow = 16 << 20

// decompress unpacks what r gives once decompressed.
func (s *Store) decompress(ctx context.Context, r io.Reader, l layerOf, u *unpacker) error {
	source := &source{r: r}
	in := bufio.NewReaderSize(source, 64<<10)
	head, err := in.Peek(len(zstdMagic))
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	var plain io.Reader = in
	switch {
	case isGzip(head):
		z, err := gzip.NewReader(in)
		if err != nil {
			return s.garbled(source, u.of, err)
		}
		plain = z
	case isZstd(head):
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(largestWindow))
		if err != nil {
			return s.garbled(source, u.of, err)
		}
		defer z.Close()
		plain = z
	}
	sum := newSummed(readFunc(func(p []byte) (int, error) {
		n, err := plain.Read(p)
		if err != nil && !errors.Is(err, io.EOF) {
			err = s.garbled(source, u.of, err)
		}
		return n, err
	}))
	second := newAhead(sum)
	err = u.unpack(ctx, second)
	second.close()
	if err == nil && l.diff != "" && sum.sum() != l.diff {
		err = fail(ErrDigest, u.of, "unpacked it has the digest %s, and its image says %s", sum.sum(), l.diff)
	}
	return err
}

// garbled says what an error of a decompressor means.
func (s *Store) garbled(source *source, of string, err error) error {
	if source.err != nil {
		return source.err
	}
	return fail(ErrInvalid, of, "it cannot be decompressed: %w", err)
}

// keep makes an unpacked layer part of the store, after the disk has all of it.
func (s *Store) keep(dir string, u *unpacker, diff digest.Digest, name string) error {
	if err := u.settle(); err != nil {
		return err
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return disk(u.of, err)
	}
	err = unix.Syncfs(fd)
	_ = unix.Close(fd)
	if err != nil {
		return disk(u.of, err)
	}
	return s.keepLayer(dir, layerRecord{Name: name, Diff: diff, Entries: u.entries, Bytes: u.bytes, Opaque: u.opaque, Root: u.top})
}
