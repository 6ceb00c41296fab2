package image

import (
	"errors"
	"strings"
	"testing"
)

const someDigest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// TestReference holds what a reference is.
func TestReference(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"ghcr.io/a/b@" + someDigest:           "",
		"ghcr.io/a/b:v1.2@" + someDigest:      "",
		"localhost:5000/a@" + someDigest:      "",
		"[::1]:5000/a_b/c--d@" + someDigest:   "",
		"docker.io/alpine@" + someDigest:      "docker.io/library/alpine@" + someDigest,
		"index.docker.io/a/b:1@" + someDigest: "docker.io/a/b:1@" + someDigest,
		"GHCR.io/a/b@" + someDigest:           "ghcr.io/a/b@" + someDigest,
	} {
		r, err := ParseReference(in)
		if want == "" {
			want = in
		}
		if err != nil || r.String() != want {
			t.Errorf("%s is %s (%v), want %s", in, r, err, want)
		}
	}
	for in, why := range map[string]string{
		"":                     "no name",
		"ghcr.io/a/b":          "no digest",
		"ghcr.io/a/b:latest":   "no digest",
		"alpine@" + someDigest: "no registry",
		"a/b@" + someDigest:    "no registry",
		"ghcr.io/a@sha256:12":  "has 2 digits",
		"ghcr.io/a@" + strings.ToUpper(someDigest):   "bad digest",
		"ghcr.io/a@" + someDigest + "@" + someDigest: "digits",
		"ghcr.io/A@" + someDigest:                    "upper-case",
		"ghcr.io/a/../b@" + someDigest:               "bad part",
		"ghcr.io/a?x@" + someDigest:                  "bad part",
		"ghcr.io//a@" + someDigest:                   "bad part",
		"ghcr.io/a:@" + someDigest:                   "bad tag",
		"user:pw.x@ghcr.io/a@" + someDigest:          "bad digest",
		"ghcr.io:x/a@" + someDigest:                  "bad registry",
		"https://ghcr.io/a@" + someDigest:            "not a URL",
		"a." + strings.Repeat("a", 60) + "/" + strings.Repeat("b", 260) + "@" + someDigest: "at most 255",
	} {
		r, err := ParseReference(in)
		if !errors.Is(err, ErrReference) || !strings.Contains(err.Error(), why) {
			t.Errorf("%q is %v (%v), want an error with %q", in, r, err, why)
		}
	}
}
