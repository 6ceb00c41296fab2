package checkpoint

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"

	"github.com/musterhq/muster/schema"
)

// redactedPrefix begins what stands for a value that was replaced.
const redactedPrefix = "redacted:"

// Redactor replaces values that may be nobody's business: those of environment variables,
// the contents of files, and the ciphertexts of secrets. The same value becomes the same
// text under the same key, so that a plan on a checkpoint sees which values a commit
// changes. Whoever has the checkpoint can try whether a value is what they guess: what must
// withstand that belongs into a secret. A nil *Redactor replaces nothing.
type Redactor struct{ key []byte }

// NewRedactor returns what replaces values under a key, which is kept in the header; nil
// for "".
func NewRedactor(key string) *Redactor {
	if key == "" {
		return nil
	}
	return &Redactor{[]byte(key)}
}

// text returns what stands for a value.
func (r *Redactor) text(what, value string) string {
	if value == "" {
		return ""
	}
	h := hmac.New(sha256.New, r.key)
	h.Write([]byte(what + "\x00" + value)) // it takes all bytes
	return redactedPrefix + hex.EncodeToString(h.Sum(nil)[:12])
}

// Job returns j without the values.
func (r *Redactor) Job(j *schema.Job) *schema.Job {
	if r == nil || j == nil {
		return j
	}
	out := *j
	out.Task.Env = replaced(j.Task.Env, func(name, value string) string { return r.text("env "+name, value) })
	out.Task.Files = replaced(j.Task.Files, func(name string, f schema.TaskFile) schema.TaskFile {
		f.Content = r.text("file "+name, f.Content)
		return f
	})
	out.Task.Secrets = replaced(j.Task.Secrets, func(_ string, s schema.TaskSecret) schema.TaskSecret {
		if s.Sealed != nil {
			sealed := *s.Sealed
			sealed.Age, sealed.SOPS = r.text("secret", sealed.Age), r.text("secret", sealed.SOPS)
			s.Sealed = &sealed
		}
		return s
	})
	return &out
}

func replaced[V any](m map[string]V, f func(name string, v V) V) map[string]V {
	out := maps.Clone(m)
	for name, v := range out {
		out[name] = f(name, v)
	}
	return out
}

// Package returns p without the values.
func (r *Redactor) Package(p *schema.Package) *schema.Package {
	if r == nil || p == nil {
		return p
	}
	out := *p
	out.Objects.Jobs = slices.Clone(p.Objects.Jobs)
	for i := range out.Objects.Jobs {
		out.Objects.Jobs[i] = *r.Job(&out.Objects.Jobs[i])
	}
	out.Objects.Secrets = slices.Clone(p.Objects.Secrets)
	for i := range out.Objects.Secrets {
		s := &out.Objects.Secrets[i]
		s.Age, s.SOPS = r.text("secret", s.Age), r.text("secret", s.SOPS)
	}
	return &out
}

// Commit returns c without the values, so that it can be planned on a checkpoint that has
// none.
func (r *Redactor) Commit(c schema.Compiled) schema.Compiled {
	if r == nil {
		return c
	}
	c.Packages = slices.Clone(c.Packages)
	for i := range c.Packages {
		if p := &c.Packages[i]; p.Package != nil {
			p.Package = r.Package(p.Package)
			p.Digest = schema.DigestOf(p.Package)
		}
	}
	return c
}
