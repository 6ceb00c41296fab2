package schema_test

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/schema"
)

const digestOfImage = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestParseImageRef(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in, registry, name, tag, short string
	}{
		{"docker.io/library/nginx:1.27", "docker.io", "library/nginx", "1.27", "docker.io/library/nginx:1.27@0123456789ab"},
		{"docker.io/library/nginx", "docker.io", "library/nginx", "", "docker.io/library/nginx@0123456789ab"},
		{"localhost/a", "localhost", "a", "", "localhost/a@0123456789ab"},
		{"localhost:5000/a:_1.-X", "localhost:5000", "a", "_1.-X", "localhost:5000/a:_1.-X@0123456789ab"},
		{"10.0.0.1:65535/a-b--c/d_e__f.g", "10.0.0.1:65535", "a-b--c/d_e__f.g", "", "10.0.0.1:65535/a-b--c/d_e__f.g@0123456789ab"},
		{"[::1]/a", "[::1]", "a", "", "[::1]/a@0123456789ab"},
		{"[fd00::1]:5000/a", "[fd00::1]:5000", "a", "", "[fd00::1]:5000/a@0123456789ab"},
		{"a.b/" + strings.Repeat("c", 251), "a.b", strings.Repeat("c", 251), "", "a.b/" + strings.Repeat("c", 251) + "@0123456789ab"},
	} {
		r, err := schema.ParseImageRef(tt.in + "@" + digestOfImage)
		if err != nil {
			t.Errorf("%s: %v", tt.in, err)
			continue
		}
		if want := (schema.ImageRef{Registry: tt.registry, Name: tt.name, Tag: tt.tag, Digest: digestOfImage}); r != want {
			t.Errorf("%s is %+v, want %+v", tt.in, r, want)
		}
		if r.String() != tt.in+"@"+digestOfImage || r.Tagged() != tt.in || r.Short() != tt.short {
			t.Errorf("%s is written %s, %s, %s", tt.in, r, r.Tagged(), r.Short())
		}
		if got := schema.ShortImage(tt.in + "@" + digestOfImage); got != tt.short || schema.ShortImage(tt.in) != tt.in {
			t.Errorf("%s is shortened to %s, and without a digest to %s", tt.in, got, schema.ShortImage(tt.in))
		}
		if r, err := schema.ParseImageTag(tt.in); err != nil || r.Digest != "" || r.String() != tt.in || r.Short() != tt.in {
			t.Errorf("%s without digest: %+v, %v", tt.in, r, err)
		}
		if _, err := schema.ParseImageRef(tt.in); err == nil {
			t.Errorf("%s is taken without a digest", tt.in)
		}
	}
}

func TestParseImageRefRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, says, hint string }{
		{"", "no name", "docker.io/library/nginx"},
		{"nginx", "no registry", "docker.io/library/nginx"},
		{"a/b:1", "no registry", "docker.io/a/b:1"},
		{"A", "no registry", "whole name"},
		{"localhost:5000", "no registry", "docker.io/library/localhost:5000"},
		{"quay.io/a:1", "has a tag", "muster image pin"},
		{"quay.io/a", "no digest", "quay.io/a:1.0"},
		{"quay.io/a:", `bad tag ""`, "1 to 128"},
		{"quay.io/a:" + strings.Repeat("t", 129), "bad tag", "1 to 128"},
		{"quay.io/a:b:c@" + digestOfImage, `bad tag "b:c"`, "1 to 128"},
		{"quay.io/@" + digestOfImage, `bad part ""`, "lower-case"},
		{"quay.io/a/@" + digestOfImage, `bad part ""`, "lower-case"},
		{"quay.io/a___b@" + digestOfImage, "bad part", "lower-case"},
		{"quay.io/a..b@" + digestOfImage, "bad part", "lower-case"},
		{"quay.io/a-_b@" + digestOfImage, "bad part", "lower-case"},
		{"quay.io/a-@" + digestOfImage, "bad part", "lower-case"},
		{"quay.io/A@" + digestOfImage, "upper-case", "quay.io/a?"},
		{"quay.io/a@", "bad digest", "sha256:"},
		{"quay.io/a@" + digestOfImage + "0", "65 digits", "image pin"},
		{"quay.io/a@" + strings.ToUpper(digestOfImage[:8]) + digestOfImage[8:], "bad digest", "sha256:"},
		{"quay.io/a@sha256:" + strings.Repeat("A", 64), "other characters", "image pin"},
		{"quay.io/a@" + digestOfImage + "@" + digestOfImage, "digits", "all of it"},
		{"quay.io:/a@" + digestOfImage, "bad registry", "PORT"},
		{"quay.io:65536/a@" + digestOfImage, "bad registry", "PORT"},
		{"quay.io:080/a@" + digestOfImage, "bad registry", "PORT"},
		{"[::1/a@" + digestOfImage, "bad registry", "PORT"},
		{"[10.0.0.1]/a@" + digestOfImage, "bad registry", "PORT"},
		{"[fe80::1%eth0]/a@" + digestOfImage, "bad registry", "PORT"},
		{"-a.b/a@" + digestOfImage, "bad registry", "PORT"},
		{"a..b/a@" + digestOfImage, "bad registry", "PORT"},
		{"a.b/" + strings.Repeat("c", 252) + "@" + digestOfImage, "256 bytes", "longer"},
		{"docker://a.b/c@" + digestOfImage, "not a URL", "write a.b/c@"},
		{"a.b/c d@" + digestOfImage, "character", "nginx"},
		{"a.b/é@" + digestOfImage, "character", "nginx"},
	} {
		r, err := schema.ParseImageRef(tt.in)
		if err == nil {
			t.Errorf("%q is taken, as %+v", tt.in, r)
			continue
		}
		if message, hint := schema.HintOf(err); !strings.Contains(message, tt.says) || !strings.Contains(hint, tt.hint) {
			t.Errorf("%q: %q, hint %q; want %q, hint %q", tt.in, message, hint, tt.says, tt.hint)
		}
	}
}

// FuzzParseImageRef: what is taken is written as it was, and what is refused has a hint.
func FuzzParseImageRef(f *testing.F) {
	for _, s := range []string{"", "nginx", "a.b/c:1", "[::1]:5/a/b", "localhost/a__b:x", "a.b/c_", "a:", "://"} {
		f.Add(s)
		f.Add(s + "@" + digestOfImage)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := schema.ParseImageRef(s)
		if err != nil {
			if message, hint := schema.HintOf(err); message == "" || hint == "" || r != (schema.ImageRef{}) {
				t.Errorf("%q: %q, hint %q, %+v", s, message, hint, r)
			}
			return
		}
		if r.String() != s || r.Registry == "" || r.Name == "" || len(r.Digest) != len(digestOfImage) {
			t.Errorf("%q is %+v, written %s", s, r, r)
		}
	})
}
