package compile

import (
	"bytes"
	"encoding/json"
	"slices"
	"sync"

	"github.com/musterhq/muster/schema"
)

// Store keeps outcomes of packages from one process to the next. It may lose any of them,
// and give back anything: what is damaged is not taken. Several goroutines use it at once.
type Store interface {
	// Load returns what was saved under a key, nil if there is nothing.
	Load(key string) []byte
	// Save keeps data under a key, which stands for all that the data depends on.
	Save(key string, data []byte)
}

// kept is what a Store has of an entry, in a line behind the digest of it and of what
// follows: the document of the package, if it has one.
type kept struct {
	Key         string              `json:"key"`
	Dir         string              `json:"dir"`
	Digest      schema.Digest       `json:"digest,omitempty"` // of the package's document
	Diagnostics []schema.Diagnostic `json:"diagnostics,omitempty"`
	Policies    int                 `json:"policies,omitempty"`
	PolicyPaths []policyPath        `json:"policyPaths,omitempty"`
	Cost        cost                `json:"cost"`
}

// recall takes from the store what the cache has not. At most so many goroutines as there
// are workers read at once.
func recall(c *Compiler, units []*unit) {
	if c.cfg.Store == nil {
		return
	}
	found := make([]*entry, len(units))
	next := make(chan int)
	var wg sync.WaitGroup
	for range c.cfg.Workers {
		wg.Go(func() {
			for i := range next {
				found[i] = decodeEntry(units[i], c.cfg.Store.Load(units[i].key))
			}
		})
	}
	for i, u := range units {
		if u.node != nil && c.cache[u.key] == nil {
			next <- i
		}
	}
	close(next)
	wg.Wait()
	for i, e := range found {
		if e != nil {
			e.round, e.tried, e.stored = c.round, c.round, true
			c.cache[units[i].key] = e
		}
	}
}

// keep gives the store what it does not have: outcomes that depend on nothing but the files.
func keep(c *Compiler, units []*unit) {
	if c.cfg.Store == nil {
		return
	}
	for _, u := range units {
		e := c.cache[u.key]
		if u.node == nil || e == nil || e.stored || e.tooMuch || e.policy.Path != "" || e.again || e.lacking() || slices.ContainsFunc(e.pkg.Diagnostics, isInternal) {
			continue
		}
		e.stored = true
		if data := encodeEntry(u.key, e); data != nil {
			c.cfg.Store.Save(u.key, data)
		}
	}
}

// isInternal reports whether a diagnostic is of a defect of ours.
func isInternal(d schema.Diagnostic) bool { return d.Rule == schema.RuleInternal }

func encodeEntry(key string, e *entry) []byte {
	line, err := json.Marshal(kept{Key: key, Dir: e.pkg.Dir, Digest: e.pkg.Digest, Diagnostics: e.pkg.Diagnostics, Policies: e.pkg.Policies, PolicyPaths: e.policyPaths, Cost: e.cost})
	if err != nil {
		return nil
	}
	rest := slices.Concat(line, []byte("\n"))
	if e.pkg.Package != nil {
		rest = append(rest, schema.Canonical(e.pkg.Package)...)
	}
	return append([]byte(string(schema.DigestBytes(rest))+"\n"), rest...)
}

// decodeEntry returns the entry of a package, nil if data is not what encodeEntry returned
// for it.
func decodeEntry(u *unit, data []byte) *entry {
	digest, rest, ok := bytes.Cut(data, []byte("\n"))
	if !ok || string(digest) != string(schema.DigestBytes(rest)) {
		return nil
	}
	line, document, _ := bytes.Cut(rest, []byte("\n"))
	var k kept
	if err := json.Unmarshal(line, &k); err != nil || k.Key != u.key || k.Dir != u.dir {
		return nil
	}
	e := &entry{pkg: schema.CompiledPackage{Dir: k.Dir, Diagnostics: k.Diagnostics, Policies: k.Policies}, policyPaths: k.PolicyPaths, cost: measured(k.Cost.CPU, k.Cost.Allocs)}
	if len(document) == 0 {
		if !slices.ContainsFunc(k.Diagnostics, isError) {
			return nil
		}
		return e
	}
	p := &schema.Package{}
	if _, err := schema.Decode(document, p); err != nil {
		return nil
	}
	e.pkg.Package, e.pkg.Digest, e.bytes = p, k.Digest, len(document)
	if first(u.dir) {
		e.tenants = p.Objects.Tenants
	}
	return e
}
