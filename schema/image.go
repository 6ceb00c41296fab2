package schema

import (
	"net/netip"
	"strconv"
	"strings"
)

// ImageRef names a container image: REGISTRY/NAME[:TAG]@DIGEST. The digest decides
// what is run; the tag is for people.
type ImageRef struct {
	Registry string // host or host:port
	Name     string // within the registry, as in library/nginx
	Tag      string // "" for none
	Digest   Digest // of the manifest, or of the index of those for several platforms
}

const (
	maxImageName = 255 // registry and name, as in the OCI distribution specification
	maxImageTag  = 128
	digestPrefix = "sha256:"
	digestHex    = 64
	// shortHex is how much of a digest people compare.
	shortHex = 12
	// dockerHub is where short names lead elsewhere.
	dockerHub = "docker.io"
)

// ImageGrammar says in words what ParseImageRef takes.
const ImageGrammar = "REGISTRY/NAME:TAG@sha256:DIGEST, where :TAG may be left out"

// String returns the reference as ParseImageRef takes it.
func (r ImageRef) String() string {
	s := r.Tagged()
	if r.Digest != "" {
		s += "@" + string(r.Digest)
	}
	return s
}

// Tagged returns the reference without its digest.
func (r ImageRef) Tagged() string {
	s := r.Registry + "/" + r.Name
	if r.Tag != "" {
		s += ":" + r.Tag
	}
	return s
}

// Short returns the reference for people: with the first 12 digits of its digest.
func (r ImageRef) Short() string {
	s := r.Tagged()
	if hex := strings.TrimPrefix(string(r.Digest), digestPrefix); len(hex) > shortHex {
		s += "@" + hex[:shortHex]
	}
	return s
}

// ShortImage returns an image for people, as ImageRef.Short, and what is no reference as
// it is.
func ShortImage(image string) string {
	if r, err := ParseImageRef(image); err == nil {
		return r.Short()
	}
	return image
}

// ParseImageRef parses a reference with a digest. Its error is a HintedError.
func ParseImageRef(s string) (ImageRef, error) {
	r, err := ParseImageTag(s)
	switch {
	case err != nil:
	case r.Digest != "":
	case r.Tag == "":
		err = Hintf("name a version, as in "+r.Tagged()+":1.0; muster image pin then adds its digest", "image %q has no digest", clip(s))
	default:
		err = Hintf("run muster image pin, which adds the digest that the tag stands for", "image %q has a tag, which can be moved, and no digest", clip(s))
	}
	if err != nil {
		return ImageRef{}, err
	}
	return r, nil
}

// ParseImageTag parses a reference that may have no digest. Its error is a
// HintedError.
func ParseImageTag(s string) (ImageRef, error) {
	if err := checkImageText(s); err != nil {
		return ImageRef{}, err
	}
	rest, digest, hasDigest := strings.Cut(s, "@")
	r := ImageRef{Digest: Digest(digest)}
	if hasDigest {
		if err := checkImageDigest(digest); err != nil {
			return ImageRef{}, err
		}
	}
	var slash bool
	r.Registry, r.Name, slash = strings.Cut(rest, "/")
	if !slash || !strings.ContainsAny(r.Registry, ".:") && r.Registry != "localhost" {
		return ImageRef{}, shortImage(s, rest, slash)
	}
	if !isRegistry(r.Registry) {
		return ImageRef{}, Hintf("it is a host name in lower case or an address, with :PORT if it is not 443", "image %q: bad registry %q", clip(s), clip(r.Registry))
	}
	var hasTag bool
	if r.Name, r.Tag, hasTag = strings.Cut(r.Name, ":"); hasTag && !isImageTag(r.Tag) {
		return ImageRef{}, Hintf("it is 1 to 128 letters, digits and _ . -, and begins with none of the last two", "image %q: bad tag %q", clip(s), clip(r.Tag))
	}
	if err := checkImageName(s, &r); err != nil {
		return ImageRef{}, err
	}
	return r, nil
}

// checkImageText finds what no part of a reference may have.
func checkImageText(s string) error {
	if s == "" {
		return Hintf("write it as in docker.io/library/nginx:1.27", "the image has no name")
	}
	if scheme, rest, ok := strings.Cut(s, "://"); ok {
		return Hintf("write "+clip(rest), "image %q is not a URL: %s:// does not belong there", clip(s), clip(scheme))
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return Hintf("write it as in docker.io/library/nginx:1.27", "image %q has a character that no image's name has", clip(s))
		}
	}
	return nil
}

func checkImageDigest(digest string) error {
	hex, ok := strings.CutPrefix(digest, digestPrefix)
	switch {
	case !ok:
		return Hintf("only sha256: digests are supported; muster image pin writes one", "bad digest %q", clip(digest))
	case len(hex) != digestHex:
		return Hintf("copy all of it, or remove it and run muster image pin", "digest %q has %d digits: want %d", clip(digest), len(hex), digestHex)
	case strings.Trim(hex, "0123456789abcdef") != "":
		return Hintf("copy it again, or remove it and run muster image pin", "digest %q has other characters than 0-9 and a-f", clip(digest))
	}
	return nil
}

// shortImage is the error of a name without a registry, such as nginx.
func shortImage(s, rest string, slash bool) error {
	full := dockerHub + "/library/" + rest
	if slash {
		full = dockerHub + "/" + rest
	}
	r, err := ParseImageTag(full)
	if err != nil {
		return Hintf("write the whole name, as in docker.io/library/nginx:1.27", "image %q names no registry", clip(s))
	}
	return Hintf("on Docker Hub it is "+clip(r.Tagged()), "image %q names no registry", clip(s))
}

func checkImageName(s string, r *ImageRef) error {
	if lower := strings.ToLower(r.Name); lower != r.Name {
		return Hintf("did you mean "+clip(r.Registry+"/"+lower)+"?", "image %q: the name has upper-case letters", clip(s))
	}
	for part := range strings.SplitSeq(r.Name, "/") {
		if !isImagePart(part) {
			return Hintf("it is of lower-case letters and digits, with . _ __ or hyphens between them", "image %q: bad part %q of its name", clip(s), clip(part))
		}
	}
	if n := len(r.Registry) + 1 + len(r.Name); n > maxImageName {
		return Hintf("no registry has longer ones", "image %q: registry and name have %d bytes: want at most %d", clip(s), n, maxImageName)
	}
	return nil
}

// isRegistry reports whether s is a host, with or without a port.
func isRegistry(s string) bool {
	host := s
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		n, err := strconv.ParseUint(s[i+1:], 10, 16)
		if err != nil || n == 0 || s[i+1] == '0' {
			return false
		}
		host = s[:i]
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		a, err := netip.ParseAddr(inner)
		return ok && err == nil && a.Is6() && a.Zone() == ""
	}
	for label := range strings.SplitSeq(host, ".") {
		if CheckName(label) != nil {
			return false
		}
	}
	return true
}

func isImageTag(s string) bool {
	ok := len(s) >= 1 && len(s) <= maxImageTag && s[0] != '.' && s[0] != '-'
	for i := 0; ok && i < len(s); i++ {
		c := s[i]
		ok = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '-'
	}
	return ok
}

// isImagePart reports whether s is words of letters and digits with one
// separator between each two: a dot, one or two underscores, or hyphens.
func isImagePart(s string) bool {
	alnum := func(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }
	if s == "" || !alnum(s[0]) || !alnum(s[len(s)-1]) {
		return false
	}
	for i := 0; i < len(s); i++ {
		if alnum(s[i]) {
			continue
		}
		from := i
		for !alnum(s[i+1]) {
			i++
		}
		if sep := s[from : i+1]; sep != "." && sep != "_" && sep != "__" && strings.Trim(sep, "-") != "" {
			return false
		}
	}
	return true
}

// clip returns s cut to what fits a line.
func clip(s string) string {
	const most = 120
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
