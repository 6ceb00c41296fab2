package image

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go/v1"
)

// Media types of what is read, besides those of OCI.
const (
	typeIndex          = v1.MediaTypeImageIndex
	typeManifest       = v1.MediaTypeImageManifest
	typeDockerList     = "application/vnd.docker.distribution.manifest.list.v2+json"
	typeDockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	typeDockerConfig   = "application/vnd.docker.container.image.v1+json"
)

// layerTypes are the forms of layers. How one is compressed is seen in its bytes: some
// builders say it wrong, and the digests decide in any case.
var layerTypes = []string{
	v1.MediaTypeImageLayer, v1.MediaTypeImageLayerGzip, v1.MediaTypeImageLayerZstd,
	"application/vnd.oci.image.layer.nondistributable.v1.tar",
	"application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
	"application/vnd.oci.image.layer.nondistributable.v1.tar+zstd",
	"application/vnd.docker.image.rootfs.diff.tar",
	"application/vnd.docker.image.rootfs.diff.tar.gzip",
	"application/vnd.docker.image.rootfs.diff.tar.zstd",
	"application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
}

// Limits of documents, in bytes. Registries accept manifests of 4 MiB.
const (
	largestManifest = 4 << 20
	largestConfig   = 8 << 20
)

// mostManifests bounds the manifests of an index.
const mostManifests = 1000

// manifest is an index or a manifest: exactly one is set.
type manifest struct {
	index *v1.Index
	image *v1.Manifest
}

// parseManifest reads what a digest of a reference is of.
func parseManifest(b []byte, of string) (manifest, error) {
	var kind struct {
		SchemaVersion int             `json:"schemaVersion"`
		MediaType     string          `json:"mediaType"`
		Manifests     json.RawMessage `json:"manifests"`
		Layers        json.RawMessage `json:"layers"`
		FSLayers      json.RawMessage `json:"fsLayers"`
	}
	if err := json.Unmarshal(b, &kind); err != nil {
		return manifest{}, fail(ErrInvalid, of, "its manifest is no JSON object of the form: %w", err)
	}
	switch {
	case kind.SchemaVersion == 1 || kind.FSLayers != nil:
		return manifest{}, fail(ErrMediaType, of, "it has a Docker manifest of schema 1, which is no longer in use; push it again with a current tool")
	case kind.Manifests != nil && kind.Layers != nil:
		return manifest{}, fail(ErrInvalid, of, "its manifest is an index and a manifest at once")
	}
	var m manifest
	var err error
	switch kind.MediaType {
	case typeIndex, typeDockerList:
		m.index = &v1.Index{}
	case typeManifest, typeDockerManifest:
		m.image = &v1.Manifest{}
	case "":
		if kind.Manifests != nil {
			m.index = &v1.Index{}
		} else {
			m.image = &v1.Manifest{}
		}
	default:
		return manifest{}, fail(ErrMediaType, of, "its manifest is a %.100q", kind.MediaType)
	}
	if m.index != nil {
		err = json.Unmarshal(b, m.index)
	} else {
		err = json.Unmarshal(b, m.image)
	}
	if err != nil {
		return manifest{}, fail(ErrInvalid, of, "its manifest has another form: %w", err)
	}
	return m, nil
}

// Platform is what an image is made for, in Go's words, such as linux, arm64 and v8.
type Platform struct {
	OS           string
	Architecture string
	Variant      string // "" takes images without a variant, or the only one
}

// String returns it as registries write it.
func (p Platform) String() string {
	s := p.OS + "/" + p.Architecture
	if p.Variant != "" {
		s += "/" + p.Variant
	}
	return s
}

// plain is a platform without the variant that all its machines have.
func (p Platform) plain() Platform {
	if p.Architecture == "arm64" && p.Variant == "v8" || p.Architecture == "amd64" && p.Variant == "v1" {
		p.Variant = ""
	}
	return p
}

// choose returns the manifest of an index that is made for a platform: of its variant,
// or of none.
func choose(index *v1.Index, p Platform, of string) (v1.Descriptor, error) {
	if len(index.Manifests) > mostManifests {
		return v1.Descriptor{}, fail(ErrInvalid, of, "its index has %d manifests, more than %d", len(index.Manifests), mostManifests)
	}
	p = p.plain()
	var fits []v1.Descriptor
	var others []string
	for _, d := range index.Manifests {
		if d.Platform == nil || d.MediaType != typeManifest && d.MediaType != typeDockerManifest {
			continue
		}
		has := Platform{d.Platform.OS, d.Platform.Architecture, d.Platform.Variant}.plain()
		if has == p {
			return d, nil
		}
		if has.OS == p.OS && has.Architecture == p.Architecture && (has.Variant == "" || p.Variant == "" && p.Architecture == "arm") {
			fits = append(fits, d)
			continue
		}
		others = append(others, has.String())
	}
	if len(fits) > 0 {
		return fits[0], nil
	}
	slices.Sort(others)
	return v1.Descriptor{}, fail(ErrPlatform, of, "it has none for %s, only for %.300s", p, strings.Join(slices.Compact(others), ", "))
}

// Settings are what an image says of how it is run.
type Settings struct {
	Entrypoint   []string          `json:"entrypoint,omitempty"`
	Command      []string          `json:"command,omitempty"`    // arguments of Entrypoint, or the whole command
	Env          []string          `json:"env,omitempty"`        // NAME=value
	WorkingDir   string            `json:"workingDir,omitempty"` // "" is /
	User         string            `json:"user,omitempty"`       // user, uid, user:group or uid:gid, of the image's /etc/passwd
	StopSignal   string            `json:"stopSignal,omitempty"` // such as SIGINT or 2; "" is SIGTERM
	ExposedPorts []string          `json:"exposed,omitempty"`    // port, port/tcp or port/udp, sorted
	Volumes      []string          `json:"volumes,omitempty"`    // directories, sorted
	Labels       map[string]string `json:"labels,omitempty"`
}

// parseConfig reads an image's configuration.
func parseConfig(b []byte, p Platform, of string) (Settings, []digest.Digest, error) {
	var c v1.Image
	if err := json.Unmarshal(b, &c); err != nil {
		return Settings{}, nil, fail(ErrInvalid, of, "its configuration is no JSON object of the form: %w", err)
	}
	has := Platform{c.OS, c.Architecture, c.Variant}.plain()
	if has.OS != p.OS || has.Architecture != p.Architecture {
		return Settings{}, nil, fail(ErrPlatform, of, "it is made for %.50s, and this machine is %s", has, p)
	}
	if c.RootFS.Type != "layers" {
		return Settings{}, nil, fail(ErrInvalid, of, "its root file system is of type %.30q, not of layers", c.RootFS.Type)
	}
	s := Settings{
		Entrypoint: c.Config.Entrypoint, Command: c.Config.Cmd, Env: c.Config.Env,
		WorkingDir: c.Config.WorkingDir, User: c.Config.User, StopSignal: c.Config.StopSignal,
		ExposedPorts: sortedKeys(c.Config.ExposedPorts), Volumes: sortedKeys(c.Config.Volumes),
		Labels: c.Config.Labels,
	}
	return s, c.RootFS.DiffIDs, nil
}

func sortedKeys(m map[string]struct{}) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// layerOf is one layer of an image: what is pulled, and what it is.
type layerOf struct {
	sum   digest.Digest // of the bytes in the registry
	size  int64         // of them
	diff  digest.Digest // of the tar
	chain digest.Digest // of it and all below it
}

// layersOf returns the layers of an image, lowest first.
func layersOf(m *v1.Manifest, diffs []digest.Digest, most int, of string) ([]layerOf, error) {
	if len(m.Layers) != len(diffs) {
		return nil, fail(ErrInvalid, of, "its manifest has %d layers and its configuration %d", len(m.Layers), len(diffs))
	}
	if len(diffs) > most {
		return nil, fail(ErrInvalid, of, "it has %d layers, at most %d are taken (Config.MaxLayers)", len(diffs), most)
	}
	var out []layerOf
	chain := digest.Digest("")
	for i, d := range m.Layers {
		switch {
		case !slices.Contains(layerTypes, d.MediaType):
			return nil, fail(ErrMediaType, of, "its layer %d is a %.100q", i+1, d.MediaType)
		case !digestForm.MatchString(d.Digest.String()) || !digestForm.MatchString(diffs[i].String()):
			return nil, fail(ErrInvalid, of, "its layer %d has a digest that is not sha256", i+1)
		case d.Size < 0:
			return nil, fail(ErrInvalid, of, "its layer %d has %d bytes", i+1, d.Size)
		}
		if chain == "" {
			chain = diffs[i]
		} else {
			chain = digest.FromString(chain.String() + " " + diffs[i].String())
		}
		out = append(out, layerOf{sum: d.Digest, size: d.Size, diff: diffs[i], chain: chain})
	}
	return out, nil
}
