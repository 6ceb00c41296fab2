package image

import (
	"context"
	"io"
	"net/http"
	"slices"

	"github.com/opencontainers/go-digest"

	"github.com/musterhq/muster/schema"
)

// Tags asks registries what tags stand for now. Its methods may be called from any
// goroutine. It has nothing on the disk.
type Tags struct {
	client *client
}

// NewTags returns a Tags with the fields of cfg that are about registries: Transport,
// Insecure, Credentials, Stall and Now. Mirrors are not asked, since their tags may be
// old.
func NewTags(cfg Config) *Tags {
	cfg.Mirrors = nil
	return &Tags{client: newClient(&cfg)}
}

// Digest returns the digest that the tag of ref stands for: of the index, where there
// are images for several platforms. The digest of ref is not looked at. Errors are those
// of Ensure, but for ErrDigest, ErrNoSpace and ErrPlatform.
func (t *Tags) Digest(ctx context.Context, ref schema.ImageRef) (schema.Digest, error) {
	if !tagForm.MatchString(ref.Tag) {
		return "", fail(ErrReference, ref.String(), "it has no tag")
	}
	registry, name := onHub(ref.Registry, ref.Name)
	a := ask{method: http.MethodHead, repo: name, path: "manifests/" + ref.Tag, header: http.Header{"Accept": {manifestTypes}}}
	h := t.client.hosts(registry, Access{})[0]
	// Registries count a GET as a pull, and allow few of them. Who pulls the digest
	// verifies it, so the header is as good as the manifest.
	res, err := t.client.get(ctx, h, a)
	if err != nil {
		return "", err
	}
	_ = res.Body.Close()
	sum := res.Header.Get("Docker-Content-Digest")
	known := []string{typeIndex, typeManifest, typeDockerList, typeDockerManifest}
	if digestForm.MatchString(sum) && slices.Contains(known, res.Header.Get("Content-Type")) {
		return schema.Digest(sum), nil
	}
	a.method = http.MethodGet
	res, err = t.client.get(ctx, h, a)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, largestManifest+1))
	if err != nil {
		return "", err
	}
	if len(b) > largestManifest {
		return "", fail(ErrInvalid, ref.Tagged(), "its manifest has more than %d bytes", largestManifest)
	}
	if _, err := parseManifest(b, ref.Tagged()); err != nil {
		return "", err
	}
	return schema.Digest(digest.FromBytes(b).String()), nil
}
