package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/schema"
)

// Image is an image of the store, unpacked.
type Image struct {
	Digest   digest.Digest // by which it was asked for, and is held
	Manifest digest.Digest // of this platform's manifest
	Settings Settings
	// Layers are the directories that overlayfs merges, lowest first (its option
	// lowerdir wants the highest first). There may be none, or so many that their
	// paths do not fit into one call of mount(2), which takes a page: fsconfig(2) has
	// lowerdir+ for them. Nobody may write to them.
	Layers []string
	// Root is what the upper directory of an overlay must be given: it hides the
	// attributes that the layers have for the root.
	Root Root
	// Bytes is what the layers take on the disk, about; images share layers.
	Bytes int64
}

// Root are the attributes of an image's root directory.
type Root struct {
	Mode     uint32 // permissions, with setuid, setgid and sticky as in a stat
	UID, GID uint32
}

// Ensure returns an image, pulled first if the store does not have it. It may be
// called again with no effect, and is safe for callers that ask for the same at once:
// they share one pull, which goes on until none of them waits. An image that the store
// has needs no network, whoever asks.
//
// What a failed pull has unpacked of whole layers is used by the next one. Ensure does
// not try again: errors are ErrUnavailable, ErrSlow, ErrUnauthorized, ErrNotFound,
// ErrDigest, ErrNoSpace, ErrInvalid, ErrPlatform, ErrMediaType, those of ctx and of
// the disk, and After says when the registry wants to be asked again.
//
// An image that nobody holds may be collected at once: see Hold.
func (s *Store) Ensure(ctx context.Context, ref schema.ImageRef) (Image, error) {
	return s.EnsureBy(ctx, ref, Access{})
}

// EnsureBy is Ensure with a way to reach registries. Callers that share a pull share that of
// the first.
func (s *Store) EnsureBy(ctx context.Context, ref schema.ImageRef, by Access) (Image, error) {
	if _, err := ParseReference(ref.String()); err != nil {
		return Image{}, err
	}
	if r, ok := s.have(digest.Digest(ref.Digest)); ok && !r.Archive {
		return s.image(r), nil
	}
	img, _, err := s.pulls.do(ctx, repositoryOf(ref)+"@"+string(ref.Digest), func(ctx context.Context) (Image, error) {
		return s.pullImage(ctx, ref, by)
	})
	return img, err
}

// Find returns an image that the store has, and notes that it is used; false if it would
// have to be pulled.
func (s *Store) Find(ref schema.ImageRef) (Image, bool) {
	r, ok := s.have(digest.Digest(ref.Digest))
	if !ok || r.Archive {
		return Image{}, false
	}
	return s.image(r), true
}

// have returns what the store has of a digest, and notes that it is used.
func (s *Store) have(d digest.Digest) (imageRecord, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.images[d]
	if k == nil {
		return imageRecord{}, false
	}
	s.use(k)
	return k.record, true
}

// use notes that an image is used now. s.mu is held.
func (s *Store) use(k *kept) {
	k.used = s.cfg.Now()
	name := s.imageFile(k.record.Digest)
	if err := os.Chtimes(name, k.used, k.used); err != nil { // it may be collected too early
		s.cfg.Log.Warn("cannot note when an image was used", "file", name, "err", err)
	}
}

func (s *Store) image(r imageRecord) Image {
	img := Image{
		Digest: r.Digest, Manifest: r.Manifest, Settings: r.Settings, Bytes: r.Bytes,
		Root: Root{Mode: r.Root.Mode, UID: r.Root.UID, GID: r.Root.GID},
	}
	for _, name := range r.Layers {
		img.Layers = append(img.Layers, s.path(layersDir, name, rootName))
	}
	return img
}

// pullImage is Ensure for one that the store does not have.
func (s *Store) pullImage(ctx context.Context, ref schema.ImageRef, by Access) (Image, error) {
	from := repository{client: s.client, hosts: s.client.hosts(ref.Registry, by), name: ref.Name, search: s.search(digest.Digest(ref.Digest))}
	stop := from.search.keep(ctx)
	img, err := s.pullFrom(ctx, ref, from)
	stop(err)
	return img, err
}

// pullFrom pulls an image.
func (s *Store) pullFrom(ctx context.Context, ref schema.ImageRef, from repository) (Image, error) {
	of := ref.String()
	sum, m, err := s.manifest(ctx, from, ref)
	if err != nil {
		return Image{}, err
	}
	switch m.Config.MediaType {
	case v1.MediaTypeImageConfig, typeDockerConfig:
	default:
		return Image{}, fail(ErrMediaType, of, "its configuration is a %.100q: it is something else than an image", m.Config.MediaType)
	}
	if !digestForm.MatchString(m.Config.Digest.String()) || m.Config.Size > largestConfig {
		return Image{}, fail(ErrInvalid, of, "its configuration has %d bytes and the digest %.80q; at most %d and sha256 are taken", m.Config.Size, m.Config.Digest, int64(largestConfig))
	}
	b, err := s.small(ctx, from, "blobs", m.Config.Digest, largestConfig)
	if err != nil {
		return Image{}, err
	}
	settings, diffs, err := parseConfig(b, s.cfg.Platform, of)
	if err != nil {
		return Image{}, err
	}
	layers, err := layersOf(m, diffs, s.cfg.MaxLayers, of)
	if err != nil {
		return Image{}, err
	}
	names, err := s.pullLayers(ctx, from, layers, of)
	defer s.unpin(names)
	if err != nil {
		return Image{}, err
	}
	r := imageRecord{Digest: sum, Manifest: sum, From: repositoryOf(ref), Settings: settings, Pulled: s.cfg.Now()}
	if err := s.assemble(&r, names, of); err != nil {
		return Image{}, err
	}
	if err := s.writeImage(r); err != nil {
		return Image{}, err
	}
	if r.Digest = digest.Digest(ref.Digest); sum != r.Digest {
		if err := s.writeImage(r); err != nil {
			return Image{}, err
		}
	}
	return s.image(r), nil
}

// manifest returns the manifest of this platform, and its digest.
func (s *Store) manifest(ctx context.Context, from repository, ref schema.ImageRef) (digest.Digest, *v1.Manifest, error) {
	sum, of := digest.Digest(ref.Digest), ref.String()
	for nested := false; ; nested = true {
		b, err := s.small(ctx, from, "manifests", sum, largestManifest)
		if err != nil {
			return "", nil, err
		}
		m, err := parseManifest(b, of)
		if err != nil {
			return "", nil, err
		}
		if m.image != nil {
			return sum, m.image, nil
		}
		if nested {
			return "", nil, fail(ErrInvalid, of, "its index says that %s is a manifest, and it is an index", sum)
		}
		d, err := choose(m.index, s.cfg.Platform, of)
		if err != nil {
			return "", nil, err
		}
		if sum = d.Digest; !digestForm.MatchString(sum.String()) {
			return "", nil, fail(ErrInvalid, of, "its index has the digest %.80q, which is not sha256", sum)
		}
	}
}

// search returns what looks for an image or an archive at other machines; nil if there are none.
func (s *Store) search(content digest.Digest) *search {
	if s.cfg.Peers == nil {
		return nil
	}
	return (&search{peers: s.cfg.Peers, content: content, now: s.cfg.Now, slow: s.client.stall, traffic: &s.fromPeers}).begin()
}

// small returns a manifest or a configuration of at most limit bytes: the copy that is here, that
// of another machine, or what a host has.
func (s *Store) small(ctx context.Context, from repository, path string, sum digest.Digest, limit int64) ([]byte, error) {
	if b, ok := s.copies.read(sum, limit); ok {
		from.search.end(sum, true)
		return b, nil
	}
	b, err := from.search.small(ctx, sum, limit)
	if err == nil && b == nil {
		b, err = from.small(ctx, path, sum, limit)
	}
	if err == nil {
		s.copies.add(sum, b, s.cfg.Now())
	}
	from.search.end(sum, err == nil && s.copies.has(sum))
	return b, err
}

// assemble sets what an image is made of from its layers, lowest first.
func (s *Store) assemble(r *imageRecord, names []string, of string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Root = plainDir
	var bytes, entries int64
	last := map[string]int{}
	for i, name := range names {
		l := s.layers[name].record
		bytes += l.Bytes
		entries += l.Entries
		last[name] = i
		if l.Root != nil {
			r.Root = *l.Root
		}
	}
	if bytes > s.cfg.MaxImageBytes || entries > s.cfg.MaxEntries {
		return fail(ErrInvalid, of, "it has %d bytes and %d entries unpacked; at most %d and %d are taken (Config.MaxImageBytes, Config.MaxEntries)", bytes, entries, s.cfg.MaxImageBytes, s.cfg.MaxEntries)
	}
	r.Bytes = bytes
	for i, name := range names {
		if s.layers[name].record.Opaque {
			r.Layers = nil
		}
		if last[name] == i { // overlayfs takes a directory once, and the highest decides
			r.Layers = append(r.Layers, name)
		}
	}
	return nil
}

// pullLayers returns the names of an image's layers in the store, lowest first, pinned.
// Those that came before an error are returned with it.
func (s *Store) pullLayers(ctx context.Context, from repository, layers []layerOf, of string) ([]string, error) {
	b := s.budget(of)
	names := make([]string, len(layers))
	ready := make([]chan struct{}, len(layers))
	for i := range ready {
		ready[i] = make(chan struct{})
	}
	room := make(chan struct{}, s.cfg.Parallel)
	g, ctx := errgroup.WithContext(ctx)
	for i, l := range layers {
		g.Go(func() error {
			lower := func() ([]string, error) {
				for j := range i {
					select {
					case <-ready[j]:
					case <-ctx.Done():
						return nil, context.Cause(ctx)
					}
				}
				return names[:i], nil
			}
			name, err := s.layer(ctx, layerPull{from: from, layer: l, budget: b, room: room, lower: lower})
			if err == nil {
				names[i] = name
				close(ready[i])
			}
			return err
		})
	}
	return names, g.Wait()
}

// layerPull is one layer of an image that is pulled.
type layerPull struct {
	from   repository
	layer  layerOf
	budget *budget
	room   chan struct{}            // has one of Parallel places
	lower  func() ([]string, error) // waits for the layers below it
}

// layer returns the name of a layer in the store, pinned.
func (s *Store) layer(ctx context.Context, p layerPull) (string, error) {
	for {
		if name, ok := s.pin(p.layer); ok {
			p.from.search.end(p.layer.sum, s.copies.has(p.layer.sum)) // others may lack it
			return name, nil
		}
		select {
		case p.room <- struct{}{}:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		st, mine, err := s.unpack.do(ctx, p.layer.diff.String(), func(ctx context.Context) (*staged, error) {
			return s.pull(ctx, p.from, p.layer, unpackInto{budget: p.budget})
		})
		<-p.room
		switch {
		case err != nil && (mine || ctx.Err() != nil):
			return "", err
		case err != nil: // another image's registry, or budget
			continue
		case st.u.needs() && st.take():
			if err := s.depend(ctx, p, st); err != nil {
				return "", err
			}
		}
	}
}

// depend keeps a layer of which those below it decide something.
func (s *Store) depend(ctx context.Context, p layerPull, st *staged) error {
	names, err := p.lower()
	if err != nil {
		return s.drop(st, err)
	}
	lower := s.visible(names)
	err = st.u.resolve(lower)
	if errors.Is(err, errFollow) { // rarely: it comes a second time
		if err := s.drop(st, nil); err != nil {
			return err
		}
		if st, err = s.pull(ctx, p.from, p.layer, unpackInto{budget: p.budget, lower: lower}); err != nil {
			return err
		}
		err = st.u.resolve(lower)
	}
	if err == nil {
		err = s.keep(st.dir, st.u, p.layer.diff, chainedName(p.layer.chain))
	}
	if err != nil {
		return s.drop(st, err)
	}
	st.u.tree.close()
	return nil
}

// drop removes a layer that is not kept because of err, if not nil.
func (s *Store) drop(st *staged, err error) error {
	st.u.tree.close()
	st.u.budget.giveBack(st.u.bytes, st.u.entries)
	return errors.Join(err, s.bin.Put(st.dir))
}

// visible returns the directories of layers from the top down, to the first that hides
// all below it.
func (s *Store) visible(names []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for i := len(names) - 1; i >= 0; i-- {
		out = append(out, filepath.Join(s.path(layersDir, names[i]), rootName))
		if s.layers[names[i]].record.Opaque {
			break
		}
	}
	return out
}
