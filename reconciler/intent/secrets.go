package intent

import (
	"maps"
	"slices"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// carried returns a commit with what the cell knows of its secrets already: one whose
// ciphertext is that of the head keeps its version, whoever leads and whatever keys it has.
// So a master without them changes nothing that runs.
func carried(s *model.State, c schema.Compiled) schema.Compiled {
	out := c
	out.Packages = append([]schema.CompiledPackage(nil), c.Packages...)
	if !slices.ContainsFunc(c.Packages, func(p schema.CompiledPackage) bool { return p.Package != nil && len(p.Package.Objects.Secrets) > 0 }) {
		return out
	}
	known := versions(s.HeadPackages())
	for i := range out.Packages {
		p := &out.Packages[i]
		if p.Package == nil || len(p.Package.Objects.Secrets) == 0 {
			continue
		}
		opened := maps.Clone(p.Package.Opened)
		for i := range p.Package.Objects.Secrets {
			o := &p.Package.Objects.Secrets[i]
			if version := known[schema.DigestOf(o)]; version != "" {
				if opened == nil {
					opened = map[schema.ObjectKey]schema.Opened{}
				}
				opened[secretKey(o)] = schema.Opened{Version: version}
			}
		}
		if !maps.Equal(opened, p.Package.Opened) {
			next := *p.Package
			next.Opened = opened
			p.Package, p.Digest = &next, schema.DigestOf(&next)
		}
	}
	return out
}

// versions returns the versions of secrets by their digests.
func versions(packages map[string]*schema.Package) map[schema.Digest]string {
	out := map[schema.Digest]string{}
	for _, p := range packages {
		for i := range p.Objects.Secrets {
			o := &p.Objects.Secrets[i]
			if version := p.Opened[secretKey(o)].Version; version != "" {
				out[schema.DigestOf(o)] = version
			}
		}
	}
	return out
}

func secretKey(s *schema.Secret) schema.ObjectKey {
	return schema.ObjectKey{Kind: schema.KindSecret, Name: s.ID()}
}

// versionKey returns the write of the key of versions that came with a commit, if it is
// news. It is stored before any of the versions are.
func versionKey(s *model.State, c schema.Compiled) []model.Write {
	if c.VersionKey == "" || c.VersionKey == s.Secrets.VersionKey {
		return nil
	}
	return []model.Write{s.Document(model.KeySecrets, schema.SecretsRecord{VersionKey: c.VersionKey})}
}
