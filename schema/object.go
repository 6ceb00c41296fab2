package schema

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind is the kind of a declared object: the name of its top-level field.
type Kind string

// The kinds that a package may declare.
const (
	KindCell     Kind = "cell"
	KindMachine  Kind = "machine"
	KindPriority Kind = "priority"
	KindTenant   Kind = "tenant"
	KindQuota    Kind = "quota"
	KindSecret   Kind = "secret"
	KindService  Kind = "service"
	KindAllocSet Kind = "allocset"
	KindJob      Kind = "job"
)

// Kinds lists the kinds in the order in which they are reported.
func Kinds() []Kind {
	return []Kind{KindCell, KindMachine, KindPriority, KindTenant, KindQuota, KindSecret, KindService, KindAllocSet, KindJob}
}

// Definition returns the name of the kind's definition in CUE, such as #Job.
func (k Kind) Definition() string {
	if k == KindAllocSet {
		return "#AllocSet"
	}
	return "#" + strings.ToUpper(string(k[:1])) + string(k[1:])
}

// Admin reports whether k is accepted only from the root package, from cells/
// and from paths of a tenant with the capability admin.
func (k Kind) Admin() bool {
	switch k {
	case KindJob, KindAllocSet, KindSecret, KindService:
		return false
	}
	return true
}

// Cell is the policy of one cell.
type Cell struct {
	Name string `json:"name"`
	// Quota is "on" (bands above free need quota) or "off".
	Quota string `json:"quota"`
	// OversellPercent bounds how much quota may be sold at the bands that may
	// be oversold.
	OversellPercent Oversell `json:"oversellPercent,omitzero"`
	// Lost says how the tasks of lost machines are rescheduled; nil: the
	// defaults of its fields. See Loss.
	Lost *LossPolicy `json:"lost,omitempty"`
	// Secrets says for whom secrets of the cell are sealed; nil: nobody.
	Secrets *CellSecrets `json:"secrets,omitempty"`
	// Registries is what is to be known of registries, by HOST[:PORT].
	Registries map[string]CellRegistry `json:"registries,omitempty"`
	// Volumes are the shared directories of machines that jobs may name; nil: all.
	Volumes map[string]CellVolume `json:"volumes,omitzero"`
	// Network is of which addresses tasks get one of their own; nil: none does.
	Network *CellNetwork `json:"network,omitempty"`
	// Rebalance bounds the moves of running tasks; nil: the defaults of its fields. See
	// Moves.
	Rebalance *RebalancePolicy `json:"rebalance,omitempty"`
	// MaxTasks is how many tasks the cell admits, of all jobs together: 1 to MaxCellTasks;
	// 0 is DefaultCellTasks.
	MaxTasks int `json:"maxTasks,omitempty"`
}

// Bounds of the number of tasks, which hold whatever quota there is.
const (
	// DefaultCellTasks is twice what a master is measured with under all loads.
	DefaultCellTasks = 200_000
	MaxCellTasks     = 10_000_000
	// DefaultTasksWithoutQuota is a tenth of DefaultCellTasks: so many tasks delay what
	// another tenant commits by less than a second.
	DefaultTasksWithoutQuota = 20_000
)

// TasksBound returns how many tasks the cell admits.
func (c *Cell) TasksBound() int { return cmp.Or(c.MaxTasks, DefaultCellTasks) }

// Moves returns the cell's policy for moves.
func (c *Cell) Moves() RebalancePolicy {
	if c.Rebalance == nil {
		return RebalancePolicy{MovesPerHour: DefaultMovesPerHour}
	}
	return *c.Rebalance
}

// CellRegistry is what a cell says of a registry of images, or of a server of packages.
type CellRegistry struct {
	// Mirrors are hosts that are asked before it, in this order: HOST[:PORT].
	Mirrors []string `json:"mirrors,omitempty"`
	// Login is a secret, as USER/NAME, with which it is asked for jobs of users who have
	// none for it; "" is none.
	Login string `json:"login,omitempty"`
}

// CellSecrets says for whom secrets are sealed that users edit.
type CellSecrets struct {
	// Recipients are age recipients: the cell's, and of people who may read all its
	// secrets.
	Recipients []string `json:"recipients"`
}

// Oversell says how much quota may be sold at a band, in percent of what the
// cell's machines have: 100 to 10000, or 0 for no bound. Production and
// monitoring are not among its fields, since their quota counts only as far as
// the machines go, nor is free, which needs none.
type Oversell struct {
	Batch int `json:"batch,omitempty"`
}

// The capabilities of a tenant.
const (
	// CapabilityAdmin lets a tenant's paths declare every kind of object.
	CapabilityAdmin = "admin"
	// CapabilityMonitoring lets jobs below a tenant's paths be at band
	// monitoring, which nothing preempts, and which preempts production.
	CapabilityMonitoring = "monitoring"
)

// Machine is what the repository says of a machine. It need not have joined.
type Machine struct {
	Name string `json:"name"`
	Cell string `json:"cell"`
	// Labels are attributes of the machine, beside those that its agent
	// reports; of two by one name the label counts.
	Labels map[string]string `json:"labels,omitempty"`
	// Match is a selector of machines by their attributes, their name being the
	// attribute machine: the object then speaks of all that it matches, and its
	// own name is no machine's. "" speaks of the machine of that name.
	Match string `json:"match,omitempty"`
	// Taints keep new tasks away that do not tolerate them, by key.
	Taints map[string]Taint `json:"taints,omitempty"`
	// Cordon keeps new tasks away. What runs on the machine goes on.
	Cordon bool `json:"cordon"`
	// Drain keeps new tasks away and moves those that run to other machines.
	Drain *Drain `json:"drain,omitempty"`
	// Gone says that the machine is never to be waited for: it is silent, and
	// nothing runs on it any more.
	Gone bool `json:"gone,omitempty"`
}

// Taint keeps new tasks away from a machine. What runs on the machine goes on.
type Taint struct {
	Value string `json:"value,omitempty"`
	// Users, when not empty, are the only ones whose tasks can tolerate it.
	Users []string `json:"users,omitempty"`
}

// Drain says how machines are emptied.
type Drain struct {
	// AtOnce is how many of the machines that Match names are emptied at a time.
	AtOnce int `json:"atOnce"`
	// Deadline is when AtDeadline counts; zero is never.
	Deadline time.Time `json:"deadline,omitzero"`
	// AtDeadline says which wins from then on: DeadlineBudget, which waits on for
	// what jobs allow, or DeadlineStop, which stops what is left.
	AtDeadline string `json:"atDeadline"`
}

// The values of Drain.AtDeadline.
const (
	DeadlineBudget = "budget"
	DeadlineStop   = "stop"
)

// MaxDrainAtOnce is the most machines that one drain empties at a time.
const MaxDrainAtOnce = 1000

// NamedPriority is a name for a priority.
type NamedPriority struct {
	Name  string   `json:"name"`
	Value Priority `json:"value"`
}

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
	Allow        *Allow   `json:"allow,omitempty"` // nil: no capabilities, all devices and volumes
	// TasksWithoutQuota is how many tasks the jobs below Paths may have together in one cell
	// that need no quota: 0 to MaxCellTasks; nil is DefaultTasksWithoutQuota, or no bound where
	// no band needs quota.
	TasksWithoutQuota *int `json:"tasksWithoutQuota,omitempty"`
	// NonPreemptibleTasks is how many tasks the jobs below Paths may have together in one cell
	// that may not be preempted, see Job.Preemptible: 0 to MaxCellTasks. Allocs count as tasks.
	NonPreemptibleTasks int `json:"nonPreemptibleTasks,omitempty"`
}

// Allow says what jobs below a tenant's paths may ask of machines.
type Allow struct {
	// Capabilities of Linux, as in Capabilities.Add, beyond those that every container has.
	Capabilities []string `json:"capabilities,omitempty"`
	// Devices are kinds; nil is all.
	Devices []string `json:"devices,omitzero"`
	// Volumes are names of shared directories of machines; nil is all.
	Volumes []string `json:"volumes,omitzero"`
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
	Kind Kind `json:"kind"`
	// Name is a job's, alloc set's or secret's cell/user/name, a machine's cell/name, and else
	// what the object is declared under.
	Name string `json:"name"`
}

// String returns the kind and the name.
func (k ObjectKey) String() string { return fmt.Sprintf("%s %s", k.Kind, k.Name) }

// Compare orders keys by kind, as text, and name.
func (k ObjectKey) Compare(o ObjectKey) int {
	return cmp.Or(strings.Compare(string(k.Kind), string(o.Kind)), strings.Compare(k.Name, o.Name))
}

// Declared returns the name under which the object is declared.
func (k ObjectKey) Declared() string { return k.Name[strings.LastIndexByte(k.Name, '/')+1:] }

// Field returns the data path of the object as CUE writes it, such as job.web
// or machine."m-17".
func (k ObjectKey) Field() string { return string(k.Kind) + "." + Label(k.Declared()) }

// Label writes the name of a field as CUE does: in quotes unless it is an
// identifier.
func Label(name string) string {
	if identifier(name) {
		return name
	}
	return strconv.Quote(name)
}

// identifier reports whether s needs no quotes as a label of CUE.
func identifier(s string) bool {
	for i, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '$'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

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

// Objects is a set of declared objects, each list sorted by name (jobs, alloc
// sets, secrets and services by cell, user and name, machines by cell and name). It is what `muster render`
// prints.
type Objects struct {
	Cells      []Cell          `json:"cells"`
	Machines   []Machine       `json:"machines"`
	Priorities []NamedPriority `json:"priorities"`
	Tenants    []Tenant        `json:"tenants"`
	Quotas     []Quota         `json:"quotas"`
	Secrets    []Secret        `json:"secrets,omitempty"`  // in none of those that were stored before there were any
	Services   []ServiceSpec   `json:"services,omitempty"` // likewise
	AllocSets  []AllocSet      `json:"allocsets"`
	Jobs       []Job           `json:"jobs"`
}

// Add appends the objects of p. Sort is to follow.
func (o *Objects) Add(p Objects) {
	o.Cells = append(o.Cells, p.Cells...)
	o.Machines = append(o.Machines, p.Machines...)
	o.Priorities = append(o.Priorities, p.Priorities...)
	o.Tenants = append(o.Tenants, p.Tenants...)
	o.Quotas = append(o.Quotas, p.Quotas...)
	o.Secrets = append(o.Secrets, p.Secrets...)
	o.Services = append(o.Services, p.Services...)
	o.AllocSets = append(o.AllocSets, p.AllocSets...)
	o.Jobs = append(o.Jobs, p.Jobs...)
}

// Each calls f with each object, as a pointer into o's lists, and its key.
func (o *Objects) Each(f func(key ObjectKey, object any)) {
	for i := range o.Cells {
		f(ObjectKey{KindCell, o.Cells[i].Name}, &o.Cells[i])
	}
	for i := range o.Machines {
		f(ObjectKey{KindMachine, o.Machines[i].Cell + "/" + o.Machines[i].Name}, &o.Machines[i])
	}
	for i := range o.Priorities {
		f(ObjectKey{KindPriority, o.Priorities[i].Name}, &o.Priorities[i])
	}
	for i := range o.Tenants {
		f(ObjectKey{KindTenant, o.Tenants[i].Name}, &o.Tenants[i])
	}
	for i := range o.Quotas {
		f(ObjectKey{KindQuota, o.Quotas[i].Name}, &o.Quotas[i])
	}
	for i := range o.Secrets {
		f(ObjectKey{KindSecret, o.Secrets[i].ID()}, &o.Secrets[i])
	}
	for i := range o.Services {
		f(ObjectKey{KindService, o.Services[i].ID()}, &o.Services[i])
	}
	for i := range o.AllocSets {
		f(ObjectKey{KindAllocSet, o.AllocSets[i].ID().String()}, &o.AllocSets[i])
	}
	for i := range o.Jobs {
		f(ObjectKey{KindJob, o.Jobs[i].ID().String()}, &o.Jobs[i])
	}
}

// Where returns the objects that keep reports true for, by what Each calls it with, in the same order.
// o is not changed.
func (o *Objects) Where(keep func(key ObjectKey, object any) bool) Objects {
	kept := map[any]bool{} // by pointer
	o.Each(func(key ObjectKey, object any) { kept[object] = keep(key, object) })
	return Objects{
		where(o.Cells, kept), where(o.Machines, kept), where(o.Priorities, kept), where(o.Tenants, kept), where(o.Quotas, kept),
		where(o.Secrets, kept), where(o.Services, kept), where(o.AllocSets, kept), where(o.Jobs, kept),
	}
}

func where[T any](l []T, kept map[any]bool) (out []T) {
	for i := range l {
		if kept[&l[i]] {
			out = append(out, l[i])
		}
	}
	return out
}

// Sort sorts each list, and makes an empty one of one that is nil: the document
// has one form.
func (o *Objects) Sort() {
	o.Cells = sorted(o.Cells, func(a, b *Cell) int { return strings.Compare(a.Name, b.Name) })
	o.Machines = sorted(o.Machines, func(a, b *Machine) int {
		return cmp.Or(strings.Compare(a.Cell, b.Cell), strings.Compare(a.Name, b.Name))
	})
	o.Priorities = sorted(o.Priorities, func(a, b *NamedPriority) int { return strings.Compare(a.Name, b.Name) })
	o.Tenants = sorted(o.Tenants, func(a, b *Tenant) int { return strings.Compare(a.Name, b.Name) })
	o.Quotas = sorted(o.Quotas, func(a, b *Quota) int { return strings.Compare(a.Name, b.Name) })
	o.Secrets = sorted(o.Secrets, func(a, b *Secret) int {
		return cmp.Or(strings.Compare(a.Cell, b.Cell), strings.Compare(a.User, b.User), strings.Compare(a.Name, b.Name))
	})
	o.Services = sorted(o.Services, (*ServiceSpec).Compare)
	o.AllocSets = sorted(o.AllocSets, func(a, b *AllocSet) int { return a.ID().Compare(b.ID()) })
	o.Jobs = sorted(o.Jobs, func(a, b *Job) int { return a.ID().Compare(b.ID()) })
}

func sorted[T any](l []T, compare func(a, b *T) int) []T {
	if l == nil {
		return []T{}
	}
	slices.SortFunc(l, func(a, b T) int { return compare(&a, &b) })
	return l
}

// Package is what one directory of a commit declares: the unit of compilation,
// of caching and of blame. Dir is relative to the repository's root, "." for
// the root itself.
type Package struct {
	Dir string `json:"dir"`
	// Objects are as they are declared: what a name in References stands for
	// is not in them yet. See valid.Names.
	Objects Objects `json:"objects"`
	// Origins says where each object is declared. It is kept beside the
	// objects, so that a line that moves changes no object.
	Origins map[ObjectKey]Position `json:"origins"`
	// Places says of an object where the fields stand that another package may be the
	// reason of a mistake of, such as user and cell, by their data path in the object:
	// LINE:COLUMN in the file of its origin, or PATH:LINE:COLUMN. An older release
	// has stored none. See Place.
	Places map[ObjectKey]map[string]string `json:"places,omitempty"`
	// References are the names of objects that may be declared elsewhere,
	// sorted by From and Field.
	References []Reference `json:"references,omitempty"`
	// Opened is what a master says of the package's secrets, beside what is declared: a
	// Package that was compiled has none of it.
	Opened map[ObjectKey]Opened `json:"opened,omitempty"`
}

// Place returns where a field of an object of p stands, by its data path in the object: as
// well as is known, which is at least where the object is declared.
func (p *Package) Place(key ObjectKey, field string) Position {
	at := p.Origins[key]
	text := p.Places[key][field]
	column := strings.LastIndexByte(text, ':')
	if column < 0 {
		return at
	}
	line := strings.LastIndexByte(text[:column], ':')
	l, errLine := strconv.Atoi(text[line+1 : column])
	c, errColumn := strconv.Atoi(text[column+1:])
	if errLine != nil || errColumn != nil {
		return at
	}
	at.Line, at.Column = l, c
	if line >= 0 {
		at.Path = text[:line]
	}
	return at
}

// SetPlace notes where a field of an object of p stands.
func (p *Package) SetPlace(key ObjectKey, field string, at Position) {
	if p.Places == nil {
		p.Places = map[ObjectKey]map[string]string{}
	}
	if p.Places[key] == nil {
		p.Places[key] = map[string]string{}
	}
	text := fmt.Sprintf("%d:%d", at.Line, at.Column)
	if at.Path != p.Origins[key].Path {
		text = at.Path + ":" + text
	}
	p.Places[key][field] = text
}

// Reference is a name in an object that stands for another object. Packages
// compile one by one, so only who has all packages of a commit, or of a cell's
// head, can say what it stands for.
type Reference struct {
	From  ObjectKey `json:"from"`
	Field string    `json:"field"` // data path of the name within From, such as priority
	To    ObjectKey `json:"to"`
	At    Position  `json:"at"` // of the name
}
