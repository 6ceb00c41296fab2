package image

import (
	"fmt"
	"strings"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/lazyregexp"
)

var (
	tagForm    = lazyregexp.New(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
	digestForm = lazyregexp.New(`^sha256:[0-9a-f]{64}$`)
)

// dockerHub is the registry of which short names are known to everyone, and
// dockerHubHost the host that serves it.
const (
	dockerHub     = "docker.io"
	dockerHubHost = "registry-1.docker.io"
)

// ParseReference reads a reference as schema.ParseImageRef does, in the names that its
// registry has for itself. Anything else is an ErrReference.
func ParseReference(s string) (schema.ImageRef, error) {
	registry, rest, _ := strings.Cut(s, "/")
	if rest != "" {
		registry = strings.ToLower(registry) + "/"
	}
	r, err := schema.ParseImageRef(registry + rest)
	if err != nil {
		return schema.ImageRef{}, fmt.Errorf("%w: %w", ErrReference, err)
	}
	r.Registry, r.Name = onHub(r.Registry, r.Name)
	return r, nil
}

// onHub returns the names that Docker Hub itself uses of one of its images, and those of
// other registries as they are.
func onHub(registry, name string) (string, string) {
	if registry == "index.docker.io" {
		registry = dockerHub
	}
	if registry == dockerHub && !strings.Contains(name, "/") {
		name = "library/" + name
	}
	return registry, name
}

// repositoryOf returns the registry and the name, without tag and digest.
func repositoryOf(r schema.ImageRef) string { return r.Registry + "/" + r.Name }
