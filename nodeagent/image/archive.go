package image

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/schema"
)

// Archive is a tar archive of the store, unpacked.
type Archive struct {
	Digest digest.Digest // of the file as it was downloaded; by it, it is held
	Dir    string        // its content; nobody may write to it
	Bytes  int64         // what it takes on the disk, about
}

// EnsureArchive returns the content of a tar archive, which may be compressed with gzip
// or zstd, downloaded first if the store does not have it. from is https://HOST/PATH
// (also http, for hosts that are configured as insecure) or oci://REGISTRY/NAME, a
// repository of which the archive is a blob; digestOf is the sha256 of the file.
//
// It is as Ensure: idempotent, shared by callers, with its errors, and with the limits
// of one image. Names of whiteouts are names like others in it, and directories without
// an entry are of root with mode 0755 and the time 0.
func (s *Store) EnsureArchive(ctx context.Context, from string, digestOf schema.Digest) (Archive, error) {
	return s.EnsureArchiveBy(ctx, from, digestOf, Access{})
}

// EnsureArchiveBy is EnsureArchive with a way to reach servers, as EnsureBy.
func (s *Store) EnsureArchiveBy(ctx context.Context, from string, digestOf schema.Digest, by Access) (Archive, error) {
	sum := digest.Digest(digestOf)
	where, err := s.archiveFrom(from, sum, by)
	if err != nil {
		return Archive{}, err
	}
	if a, ok := s.FindArchive(digestOf); ok {
		return a, nil
	}
	a, _, err := s.fetch.do(ctx, from+"@"+sum.String(), func(ctx context.Context) (Archive, error) {
		return s.pullArchive(ctx, where, sum)
	})
	return a, err
}

// FindArchive returns an archive that the store has, and notes that it is used; false if it
// would have to be downloaded.
func (s *Store) FindArchive(digestOf schema.Digest) (Archive, bool) {
	r, ok := s.have(digest.Digest(digestOf))
	if !ok || !r.Archive {
		return Archive{}, false
	}
	return s.archive(r), true
}

// archiveFrom reads where an archive comes from.
func (s *Store) archiveFrom(from string, sum digest.Digest, by Access) (repository, error) {
	if name, ok := strings.CutPrefix(from, "oci://"); ok {
		ref, err := ParseReference(name + "@" + sum.String())
		if err != nil {
			return repository{}, err
		}
		return repository{client: s.client, hosts: s.client.hosts(ref.Registry, by), name: ref.Name}, nil
	}
	bad := func(format string, args ...any) (repository, error) {
		return repository{}, fmt.Errorf("%w: archive %.300q: %s", ErrReference, from, fmt.Sprintf(format, args...))
	}
	u, err := url.Parse(from)
	switch {
	case err != nil || u.Host == "" || u.Fragment != "" || u.Opaque != "":
		return bad("it is neither https://HOST/PATH nor oci://REGISTRY/NAME")
	case u.User != nil:
		return repository{}, fmt.Errorf("%w: archive from %s: its URL has a user; credentials are in the configuration", ErrReference, u.Host)
	case u.Scheme != "https" && (u.Scheme != "http" || !s.client.plain(u.Host)):
		return bad("only https is spoken with %s", u.Host)
	case !digestForm.MatchString(sum.String()):
		return bad("%.100q is no digest of the form sha256: and 64 hexadecimal digits in lower case", sum)
	}
	h := host{registry: u.Host, url: u.Scheme + "://" + u.Host, insecure: s.client.plain(u.Host), floor: s.client.floor, logins: by.Logins[u.Host]}
	return repository{client: s.client, hosts: []host{h}, name: u.Host + u.Path, exact: u}, nil
}

func archiveName(sum digest.Digest) string { return "archive-" + sum.Encoded() }

func (s *Store) archive(r imageRecord) Archive {
	return Archive{Digest: r.Digest, Dir: s.path(layersDir, r.Layers[0], rootName), Bytes: r.Bytes}
}

// pullArchive is EnsureArchive for one that the store does not have.
func (s *Store) pullArchive(ctx context.Context, from repository, sum digest.Digest) (Archive, error) {
	name := archiveName(sum)
	if !s.pinName(name) {
		from.search = s.search(sum)
		stop := from.search.keep(ctx)
		err := s.unpackArchive(ctx, from, sum)
		for err != nil && suspect(err) && from.search.blame(sum) {
			err = s.unpackArchive(ctx, from, sum)
		}
		if stop(err); err != nil {
			return Archive{}, err
		}
		if !s.pinName(name) {
			return Archive{}, fmt.Errorf("archive %s: it was collected at once", sum)
		}
	}
	defer s.unpin([]string{name})
	s.mu.Lock()
	bytes := s.layers[name].record.Bytes
	s.mu.Unlock()
	r := imageRecord{Digest: sum, From: from.name, Layers: []string{name}, Bytes: bytes, Pulled: s.cfg.Now(), Archive: true}
	if err := s.writeImage(r); err != nil {
		return Archive{}, err
	}
	return s.archive(r), nil
}

// pinName pins a layer of the store, if it has it.
func (s *Store) pinName(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.layers[name]
	if l != nil {
		l.pins++
	}
	return l != nil
}

func (s *Store) unpackArchive(ctx context.Context, from repository, sum digest.Digest) error {
	of := from.name + ", archive " + sum.String()
	dir, err := os.MkdirTemp(s.path(tempDir), "archive-")
	if err != nil {
		return disk(of, err)
	}
	u, err := s.unpackBlob(ctx, from, layerOf{sum: sum, size: -1}, unpackInto{dir: dir, of: of, budget: s.budget(of), plain: true})
	if err == nil {
		for p := range u.implicit {
			u.times[p] = unix.Timespec{}
		}
		err = s.keep(dir, u, "", archiveName(sum))
		u.tree.close()
	}
	if err != nil {
		s.bytes.Add(-u.bytes)
		return errors.Join(err, s.bin.Put(dir))
	}
	return nil
}
