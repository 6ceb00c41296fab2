package image

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	"github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/musterhq/muster/schema"
)

// tagged answers for the tag 1 of every repository with a document.
func tagged(b []byte, mediaType string, says func(w http.ResponseWriter, r *http.Request) bool) func(w http.ResponseWriter, r *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/manifests/1") {
			return false
		}
		w.Header().Set("Content-Type", mediaType)
		if !says(w, r) {
			_, _ = w.Write(b)
		}
		return true
	}
}

func TestTags(t *testing.T) {
	t.Parallel()
	g := newRegistry(t)
	sum, _ := g.addJSON(t, v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: typeIndex, Manifests: []v1.Descriptor{}})
	index := g.blobs[sum]
	tags := NewTags(Config{Insecure: []string{g.host()}, Mirrors: map[string][]string{g.host(): {"127.0.0.1:1"}}})
	digestOf := func(name, tag string) (schema.Digest, error) {
		return tags.Digest(t.Context(), schema.ImageRef{Registry: g.host(), Name: name, Tag: tag})
	}
	var gets atomic.Int32
	for _, tt := range []struct {
		name, mediaType string
		doc             []byte
		says            func(w http.ResponseWriter, r *http.Request) bool
		want            string
		err             error
		gets            int
	}{
		{"a header", typeIndex, index, func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Docker-Content-Digest", sum.String())
			return false
		}, sum.String(), nil, 0},
		{"no header", typeIndex, index, func(http.ResponseWriter, *http.Request) bool { return false }, sum.String(), nil, 1},
		{"a bad header", typeIndex, index, func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Docker-Content-Digest", "sha256:x")
			return false
		}, sum.String(), nil, 1},
		{"something old", "application/vnd.docker.distribution.manifest.v1+json", []byte(`{"schemaVersion":1}`), func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Docker-Content-Digest", digest.FromString(`{"schemaVersion":1}`).String())
			return false
		}, "", ErrMediaType, 1},
		{"too large", typeIndex, make([]byte, largestManifest+1), func(http.ResponseWriter, *http.Request) bool { return false }, "", ErrInvalid, 1},
		{"not for us", typeIndex, index, func(w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(http.StatusForbidden)
			return true
		}, "", ErrUnauthorized, 0},
	} {
		gets.Store(0)
		g.answer(tagged(tt.doc, tt.mediaType, func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet {
				gets.Add(1)
			}
			if !strings.Contains(r.Header.Get("Accept"), typeIndex) {
				t.Errorf("%s: takes %q", tt.name, r.Header.Get("Accept"))
			}
			return tt.says(w, r)
		}))
		got, err := digestOf("a/b", "1")
		if string(got) != tt.want || !errors.Is(err, tt.err) || int(gets.Load()) != tt.gets {
			t.Errorf("%s: %q, %v with %d GETs; want %q, %v with %d", tt.name, got, err, gets.Load(), tt.want, tt.err, tt.gets)
		}
	}
	if _, err := digestOf("a/b", "2"); !errors.Is(err, ErrNotFound) {
		t.Errorf("a tag that is not there: %v", err)
	}
	if _, err := digestOf("a/b", ""); !errors.Is(err, ErrReference) {
		t.Errorf("no tag: %v", err)
	}
}
