package checkpoint

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// redactedPrefix begins what stands for a value that was replaced.
const redactedPrefix = "redacted:"

// Redactor replaces values that may be nobody's business: those of environment variables and
// of the headers of health checks, the contents of files, and the ciphertexts of secrets.
// What a mistake in them, or around them, says is left out. The same value becomes the same
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
	if h := j.Task.Health; h != nil && h.HTTP != nil && len(h.HTTP.Headers) > 0 {
		health, check := *h, *h.HTTP
		check.Headers = replaced(check.Headers, func(name, value string) string { return r.text("header "+name, value) })
		health.HTTP, out.Task.Health = &check, &health
	}
	return &out
}

// Head returns h without the values, which mistakes may quote.
func (r *Redactor) Head(h schema.Head) schema.Head {
	if r == nil {
		return h
	}
	h.Stale = maps.Clone(h.Stale)
	for dir, ds := range h.Stale {
		h.Stale[dir] = r.diagnostics(ds)
	}
	h.Unread, h.Warnings = r.diagnostics(h.Unread), r.diagnostics(h.Warnings)
	return h
}

// diagnostics returns ds without what those say that may quote a value.
func (r *Redactor) diagnostics(ds []schema.Diagnostic) []schema.Diagnostic {
	out := slices.Clone(ds)
	for i := range out {
		if d := &out[i]; mayQuote(d.Field) {
			d.Message, d.Expected, d.Hint = "what is wrong is left out of a checkpoint without values; muster validate says it", "", ""
		}
	}
	return out
}

// valuesOf are the fields of a job that have values which are replaced.
var valuesOf = []string{"task.env", "task.files", "task.secrets", "task.health.http.headers"}

// mayQuote reports whether what is wrong with a field may quote a value: where it lies in
// what is replaced, or around that, or it is not known where it lies: it may be source text.
func mayQuote(field string) bool {
	kind, rest, _ := strings.Cut(field, ".")
	switch kind := schema.Kind(kind); {
	case kind == schema.KindSecret || !slices.Contains(schema.Kinds(), kind) || strings.Contains(rest, `"`):
		return true
	case kind != schema.KindJob:
		return false
	}
	_, in, _ := strings.Cut(rest, ".")
	return in == "" || slices.ContainsFunc(valuesOf, func(value string) bool {
		return strings.HasPrefix(in+".", value+".") || strings.HasPrefix(value+".", in+".")
	})
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
	c.Diagnostics = r.diagnostics(c.Diagnostics)
	for i := range c.Packages {
		p := &c.Packages[i]
		p.Diagnostics = r.diagnostics(p.Diagnostics)
		if p.Package != nil {
			p.Package = r.Package(p.Package)
			p.Digest = schema.DigestOf(p.Package)
		}
	}
	return c
}
