package image

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/opencontainers/go-digest"
)

// Reference names one image and its content: the registry, the repository there, and
// the digest of a manifest or of an index of manifests for several platforms.
type Reference struct {
	Registry string        // host, or host:port
	Name     string        // such as "library/alpine"
	Tag      string        // for people only: the digest decides
	Digest   digest.Digest // sha256
}

// The grammar of references, from the distribution spec.
var (
	registryForm = regexp.MustCompile(`^([a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?|\[[0-9a-fA-F:.]+\])(:[0-9]{1,5})?$`)
	nameForm     = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
	tagForm      = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
	digestForm   = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// longestName bounds registry and name together, in bytes, as registries do.
const longestName = 255

// dockerHub is the registry of which short names are known to everyone, and
// dockerHubHost the host that serves it.
const (
	dockerHub     = "docker.io"
	dockerHubHost = "registry-1.docker.io"
)

// ParseReference reads registry/name@sha256:… or registry/name:tag@sha256:…. Anything
// else is an ErrReference: what a tag means changes, and whose image a name without a
// registry is depends on who is asked.
func ParseReference(s string) (Reference, error) {
	bad := func(format string, args ...any) (Reference, error) {
		return Reference{}, fmt.Errorf("%w %.300q: %s", ErrReference, s, fmt.Sprintf(format, args...))
	}
	rest, sum, ok := strings.Cut(s, "@")
	if !ok {
		return bad("it has no digest; write registry/name@sha256:… (a tag may point to another image tomorrow)")
	}
	if !digestForm.MatchString(sum) {
		return bad("%.100q is no digest of the form sha256: and 64 hexadecimal digits in lower case", sum)
	}
	host, path, ok := strings.Cut(rest, "/")
	if !ok || !strings.ContainsAny(host, ".:[") && host != "localhost" {
		return bad("it names no registry; write registry/name, such as docker.io/library/alpine")
	}
	r := Reference{Registry: strings.ToLower(host), Digest: digest.Digest(sum)}
	r.Name = path
	if i := strings.LastIndexByte(path, ':'); i >= 0 {
		r.Name, r.Tag = path[:i], path[i+1:]
		if !tagForm.MatchString(r.Tag) {
			return bad("%.150q is no tag", r.Tag)
		}
	}
	if !registryForm.MatchString(host) {
		return bad("%.100q is no host or host:port", host)
	}
	r.Registry, r.Name = onHub(r.Registry, r.Name)
	if !nameForm.MatchString(r.Name) || len(r.Registry)+len(r.Name) > longestName {
		return bad("%.100q is no name of a repository: lower case letters, digits, and single . _ - / between them, at most %d bytes with the registry", r.Name, longestName)
	}
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

// String returns the reference as ParseReference reads it.
func (r Reference) String() string {
	s := r.Registry + "/" + r.Name
	if r.Tag != "" {
		s += ":" + r.Tag
	}
	return s + "@" + r.Digest.String()
}

// repository returns the registry and the name, without tag and digest.
func (r Reference) repository() string { return r.Registry + "/" + r.Name }
