package schema

import (
	"fmt"
	"time"
)

// Kind is the kind of a declared object: the name of its top-level field.
type Kind string

// The kinds that a package may declare.
const (
	KindCell   Kind = "cell"
	KindTenant Kind = "tenant"
	KindQuota  Kind = "quota"
	KindJob    Kind = "job"
)

// Kinds lists the kinds in the order in which they are reported.
func Kinds() []Kind { return []Kind{KindCell, KindTenant, KindQuota, KindJob} }

// Admin reports whether k is accepted only from the root package, from cells/
// and from paths of a tenant with the capability admin.
func (k Kind) Admin() bool { return k != KindJob }

// Cell is the policy of one cell.
type Cell struct {
	Name string `json:"name"`
	// Quota is "on" (bands above free need quota) or "off".
	Quota string `json:"quota"`
	// OversellPercent bounds how much quota may be sold at the bands that may
	// be oversold.
	OversellPercent Oversell `json:"oversellPercent,omitzero"`
}

// Oversell says how much quota may be sold at a band, in percent of what the
// cell's machines have: 100 to 10000, or 0 for no bound. Production and monitoring are not among
// its fields, since their quota is never more than the machines have, nor is
// free, which needs none.
type Oversell struct {
	Batch int `json:"batch,omitempty"`
}

// The capabilities of a tenant.
const (
	// CapabilityAdmin lets a tenant's paths declare every kind of object.
	CapabilityAdmin = "admin"
	// CapabilityMonitoring lets jobs below a tenant's paths be at band
	// monitoring, which nothing preempts.
	CapabilityMonitoring = "monitoring"
)

// Tenant says who owns which paths of the repository, and what may be declared
// there.
type Tenant struct {
	Name string `json:"name"`
	// Paths are directories, relative to the repository's root with no slash
	// at either end; a path covers what lies below it. The longest match owns.
	Paths []string `json:"paths"`
	// Users are the users that jobs below Paths may name.
	Users        []string `json:"users"`
	Capabilities []string `json:"capabilities,omitempty"`
}

// Quota is an amount of each resource that the jobs of one user at one band of
// one cell may ask for together, from From up to but without Until. Several
// quotas of the same user, cell and band add up.
type Quota struct {
	Name string `json:"name"`
	User string `json:"user"`
	Cell string `json:"cell"`
	Band Band   `json:"band"`
	Resources
	Tasks int `json:"tasks"` // count of tasks
	// Jobs is a count of jobs; nil does not limit it, whatever other quotas of
	// the same user, cell and band say.
	Jobs *int `json:"jobs,omitempty"`
	// From and Until are in UTC; zero is without a beginning, or an end.
	From  time.Time `json:"from,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

// ObjectKey identifies a declared object within a repository: "job
// local/search/web", "quota search-prod", …
type ObjectKey struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name"` // a job's is its BNS name
}

// String returns the kind and the name.
func (k ObjectKey) String() string { return fmt.Sprintf("%s %s", k.Kind, k.Name) }

// MarshalText returns kind:name.
func (k ObjectKey) MarshalText() ([]byte, error) { return []byte(string(k.Kind) + ":" + k.Name), nil }

// UnmarshalText parses kind:name.
func (k *ObjectKey) UnmarshalText(b []byte) error {
	for i, c := range b {
		if c == ':' {
			k.Kind, k.Name = Kind(b[:i]), string(b[i+1:])
			return nil
		}
	}
	return fmt.Errorf("object key %q: want kind:name", b)
}

// Objects is a set of declared objects, each list sorted by name (jobs by
// cell, user and name). It is what `muster render` prints.
type Objects struct {
	Cells   []Cell   `json:"cells"`
	Tenants []Tenant `json:"tenants"`
	Quotas  []Quota  `json:"quotas"`
	Jobs    []Job    `json:"jobs"`
}

// Package is what one directory of a commit declares: the unit of compilation,
// of caching and of blame. Dir is relative to the repository's root, "." for
// the root itself.
type Package struct {
	Dir     string  `json:"dir"`
	Objects Objects `json:"objects"`
	// Origins says where each object is declared. It is kept beside the
	// objects, so that a line that moves changes no object.
	Origins map[ObjectKey]Position `json:"origins"`
}
