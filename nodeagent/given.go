package nodeagent

import (
	"cmp"
	"maps"
	"slices"

	"github.com/musterhq/muster/schema"
)

// Given is what a running task was given that can change without a restart: by its name,
// which version of it. A name is one of GivenFile or GivenSecret.
type Given map[string]schema.Digest

// GivenFile is the name in Given of the file at path in a task's work directory.
func GivenFile(path string) string { return "files/" + path }

// GivenSecret is the name in Given of a task's secret.
func GivenSecret(name string) string { return "secrets/" + name }

// changeable is something of a task that can change while it runs.
type changeable struct {
	version schema.Digest
	signal  string // that a change sends; "": none
}

// Versions keeps what of tasks can change while they run, by the digest of their job's data:
// the content of files is hashed for it. Its zero value has nothing yet.
type Versions struct {
	of map[schema.Digest]map[string]changeable
}

// changeables returns what changeables does of the task of a; v may be nil.
func (v *Versions) changeables(a *schema.Assignment) map[string]changeable {
	t := &a.Job.Task
	if len(t.Files) == 0 && len(t.Secrets) == 0 {
		return nil
	}
	if v == nil {
		return changeables(t)
	}
	all, ok := v.of[a.Data]
	if !ok {
		all = changeables(t)
		if v.of == nil {
			v.of = map[schema.Digest]map[string]changeable{}
		}
		v.of[a.Data] = all
	}
	return all
}

// changeables returns all of t that can change while it runs, by their names in Given.
func changeables(t *schema.TaskSpec) map[string]changeable {
	all := map[string]changeable{}
	for path, f := range t.Files {
		if f.OnChange.InPlace() {
			all[GivenFile(path)] = changeable{
				version: schema.DigestOf(schema.TaskFile{Content: f.Content, Writable: f.Writable, Expand: f.Expand}),
				signal:  f.OnChange.SignalNamed(f.Signal),
			}
		}
	}
	for name, s := range t.Secrets {
		if s.OnChange.InPlace() && s.Sealed != nil {
			all[GivenSecret(name)] = changeable{version: schema.Digest(s.Sealed.Version), signal: s.OnChange.SignalNamed(s.Signal)}
		}
	}
	return all
}

// GivenOf returns what a task is given when it starts; nil for nothing that can change.
func GivenOf(t *schema.TaskSpec) Given { return givenOf(changeables(t)) }

func givenOf(all map[string]changeable) Given {
	var g Given
	for name, x := range all {
		if g == nil {
			g = Given{}
		}
		g[name] = x.version
	}
	return g
}

// Renewal is what of a running task is to be replaced, added and removed.
type Renewal struct {
	// Changed are names in Given, sorted; Given is what the task has afterwards.
	Changed []string
	Given   Given
	// Signals are sent to its main process after that, each once, in this order.
	Signals []string
}

// renewal returns what is to be done so that a task which has g gets what it is to have;
// false if that is nothing.
func (g Given) renewal(want map[string]changeable) (Renewal, bool) {
	var r Renewal
	signals := map[string]bool{}
	for name, x := range want {
		if g[name] == x.version {
			continue
		}
		r.Changed = append(r.Changed, name)
		if x.signal != "" {
			signals[x.signal] = true
		}
	}
	for name := range g {
		if _, ok := want[name]; !ok {
			r.Changed = append(r.Changed, name)
		}
	}
	if len(r.Changed) == 0 {
		return r, false
	}
	slices.Sort(r.Changed)
	r.Given = givenOf(want)
	r.Signals = slices.SortedFunc(maps.Keys(signals), func(a, b string) int {
		order := schema.ChangeSignals()
		return cmp.Compare(slices.Index(order, a), slices.Index(order, b))
	})
	return r, true
}
