package valid

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/schema"
)

// Reference is a name, in the data of an object, that stands for another
// object.
type Reference struct {
	Path []string // leads from the object to the name
	Key  bool     // the name is the last of Path, and not the value there
	To   schema.ObjectKey
}

// References returns the names in an object's data that stand for others,
// sorted by their paths. data is what Object returned. Which fields hold such
// names is said in their rules: see Rule.Refers.
func References(kind schema.Kind, data map[string]any) []Reference {
	var out []Reference
	var walk func(path []string, r *Rule, v any)
	walk = func(path []string, r *Rule, v any) {
		switch v := v.(type) {
		case string:
			if r.Refers != "" {
				out = append(out, Reference{Path: slices.Clone(path), To: Key(r.Refers, v, data)})
			}
		case []any:
			for i, e := range v {
				walk(append(path, strconv.Itoa(i)), r.Elem, e)
			}
		case map[string]any:
			if r.Type == Map && r.KeyRefers == "" && r.Elem.Refers == "" && r.Elem.Fields == nil && r.Elem.Elem == nil {
				return // such as env, which has many
			}
			for _, k := range slices.Sorted(maps.Keys(v)) {
				if f := r.Field(k); f != nil {
					walk(append(path, k), f.Rule, v[k])
				} else if r.Type == Map {
					if r.KeyRefers != "" {
						out = append(out, Reference{Path: append(slices.Clone(path), k), Key: true, To: Key(r.KeyRefers, k, data)})
					}
					walk(append(path, k), r.Elem, v[k])
				}
			}
		}
	}
	walk(nil, Of(kind), data)
	return out
}

// Placed returns the fields of an object that a mistake may show in which only all packages
// together have: what it belongs to. data is what Object returned.
func Placed(kind schema.Kind, data map[string]any) []string {
	var out []string
	for _, field := range []string{"user", "cell"} {
		if _, ok := data[field].(string); ok && Of(kind).Has(field) {
			out = append(out, field)
		}
	}
	if n, ok := data["priority"].(json.Number); ok {
		if p, err := n.Int64(); err == nil && schema.Priority(p).Band() == schema.BandMonitoring {
			out = append(out, "priority")
		}
	}
	if gang, _ := data["gang"].(string); gang != "" && !slices.Contains(out, "priority") {
		out = append(out, "gang", "priority")
	}
	if data["preemptible"] == any(false) {
		out = append(out, "preemptible")
	}
	task, _ := data["task"].(map[string]any)
	added, _ := addedOf(task)
	for i := range added {
		out = append(out, "task.capabilities.add."+strconv.Itoa(i))
	}
	out = append(out, placedAmounts(data, task)...)
	for _, path := range devicesOf(task) {
		out = append(out, strings.Join(path, "."))
	}
	volumes, _ := task["volumes"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(volumes)) {
		if v, _ := volumes[name].(map[string]any); v["shared"] != nil {
			out = append(out, "task.volumes."+name+".shared")
		}
	}
	out = append(out, placedPorts(data)...)
	if paths, ok := data["paths"].([]any); ok {
		for i := range paths {
			out = append(out, "paths."+strconv.Itoa(i))
		}
	}
	return out
}

// placedAmounts are the resources of a task that runs in an alloc, which may have less.
func placedAmounts(data, task map[string]any) (out []string) {
	if set, _ := data["allocset"].(string); set == "" {
		return nil
	}
	resources, _ := task["resources"].(map[string]any)
	for _, d := range schema.Dimensions() {
		if resources[string(d)] != nil {
			out = append(out, "task.resources."+string(d))
		}
	}
	return out
}

// placedPorts are the ports of a service, which no job may have.
func placedPorts(data map[string]any) (out []string) {
	ports, _ := data["ports"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(ports)) {
		if p, _ := ports[name].(map[string]any); p["target"] != nil {
			out = append(out, "ports."+name+".target")
		} else if p != nil {
			out = append(out, "ports."+name)
		}
	}
	return out
}

// Key returns the key of the object that is declared under name, with the given
// data. Of an object of another kind it returns what the same name means in the
// data's cell, and for its user.
func Key(kind schema.Kind, name string, data map[string]any) schema.ObjectKey {
	text := func(field string) string {
		s, _ := data[field].(string)
		return s
	}
	switch kind {
	case schema.KindJob, schema.KindAllocSet, schema.KindSecret, schema.KindService:
		name = schema.JobName{Cell: text("cell"), User: text("user"), Job: name}.String()
	case schema.KindMachine:
		name = text("cell") + "/" + name
	}
	return schema.ObjectKey{Kind: kind, Name: name}
}

// Names is what the references of a set of packages can stand for. It does not
// change, and is safe for concurrent use.
type Names struct {
	wanted     map[schema.Kind]bool          // kinds that are referred to
	declared   map[schema.ObjectKey]bool     // of the kinds that are referred to
	beside     map[schema.ObjectKey][]string // names by kind and what is before them, sorted
	priorities map[string]schema.Priority
	sets       map[schema.ObjectKey]allocSet
	secrets    map[schema.ObjectKey]secret
}

// allocSet is what jobs that name an alloc set need to know of it.
type allocSet struct {
	priority schema.Priority // PriorityNamed if wrong says why it has none
	each     schema.Resources
	origin   schema.Position
	wrong    []schema.Diagnostic
}

// scope returns what is before the name under which an object is declared: its
// cell, or its cell and user.
func scope(k schema.ObjectKey) schema.ObjectKey {
	k.Name = strings.TrimSuffix(k.Name, k.Declared())
	return k
}

// NamesOf returns what references can stand for among the given packages.
func NamesOf(packages []*schema.Package) Names {
	wanted := map[schema.Kind]bool{}
	n := Names{wanted: wanted, declared: map[schema.ObjectKey]bool{}, beside: map[schema.ObjectKey][]string{}, priorities: map[string]schema.Priority{}}
	for _, p := range packages {
		for i := range p.References {
			wanted[p.References[i].To.Kind] = true
		}
		for _, o := range p.Objects.Priorities {
			n.priorities[o.Name] = o.Value
		}
	}
	if len(wanted) == 0 {
		return n
	}
	for _, p := range packages {
		for key := range p.Origins {
			if wanted[key.Kind] && !n.declared[key] {
				n.declared[key] = true
				n.beside[scope(key)] = append(n.beside[scope(key)], key.Declared())
			}
		}
	}
	for _, names := range n.beside {
		slices.Sort(names)
	}
	if wanted[schema.KindSecret] {
		n.secrets = secretsOf(packages)
	}
	if wanted[schema.KindAllocSet] {
		n.sets = map[schema.ObjectKey]allocSet{}
		for _, p := range packages {
			n.findSets(p)
		}
	}
	return n
}

// Covers reports whether names stand for the same with p as without it: p declares no object of a kind
// that is referred to, and refers to none of a kind that nothing else refers to.
func (n Names) Covers(p *schema.Package) bool {
	for i := range p.References {
		if !n.wanted[p.References[i].To.Kind] {
			return false
		}
	}
	for key := range p.Origins {
		if n.wanted[key.Kind] {
			return false
		}
	}
	return len(p.Objects.Priorities) == 0
}

// findSets takes down the alloc sets of a package.
func (n Names) findSets(p *schema.Package) {
	if len(p.Objects.AllocSets) == 0 {
		return
	}
	o, wrong := n.Resolve(&schema.Package{Objects: schema.Objects{AllocSets: p.Objects.AllocSets}, References: p.References})
	for i := range o.AllocSets {
		s := &o.AllocSets[i]
		key := schema.ObjectKey{Kind: schema.KindAllocSet, Name: s.ID().String()}
		n.sets[key] = allocSet{s.Priority, s.Resources, p.Origins[key], wrong[key]}
	}
}

// Resolve returns the objects of a package with what their names stand for, and
// what is wrong with those that name what is not declared; these objects are not
// to be used. The package is not written to.
func (n Names) Resolve(p *schema.Package) (schema.Objects, map[schema.ObjectKey][]schema.Diagnostic) {
	o := p.Objects
	if len(p.References) == 0 {
		return o, nil
	}
	o.Jobs, o.AllocSets = slices.Clone(o.Jobs), slices.Clone(o.AllocSets)
	jobs := make(map[schema.ObjectKey]*schema.Job, len(o.Jobs))
	for i := range o.Jobs {
		jobs[schema.ObjectKey{Kind: schema.KindJob, Name: o.Jobs[i].ID().String()}] = &o.Jobs[i]
	}
	priorities := make(map[schema.ObjectKey]*schema.Priority, len(o.Jobs)+len(o.AllocSets))
	for key, j := range jobs {
		priorities[key] = &j.Priority
	}
	for i := range o.AllocSets {
		priorities[schema.ObjectKey{Kind: schema.KindAllocSet, Name: o.AllocSets[i].ID().String()}] = &o.AllocSets[i].Priority
	}
	wrong := map[schema.ObjectKey][]schema.Diagnostic{}
	hints := map[schema.ObjectKey]string{} // many jobs may name the same
	for i := range p.References {
		r := &p.References[i]
		if !n.declared[r.To] {
			wrong[r.From] = append(wrong[r.From], n.missing(r, hints))
			continue
		}
		if p := priorities[r.From]; p != nil && r.To.Kind == schema.KindPriority {
			*p = n.priorities[r.To.Name]
		}
		if j := jobs[r.From]; j != nil && r.To.Kind == schema.KindSecret {
			if d := n.secrets[r.To].give(r, j); d != nil {
				wrong[r.From] = append(wrong[r.From], *d)
			}
		}
		if j := jobs[r.From]; j != nil && r.To.Kind == schema.KindAllocSet {
			set := n.sets[r.To]
			j.Priority = set.priority
			if ds := slices.Concat(set.wrong, set.tooSmall(p, r, j)); len(ds) > 0 {
				wrong[r.From] = append(wrong[r.From], ds...)
			}
		}
	}
	return o, wrong
}

// tooSmall says which resource a task of j asks for more of than an alloc of
// the set has: it would never run.
func (s allocSet) tooSmall(p *schema.Package, r *schema.Reference, j *schema.Job) []schema.Diagnostic {
	for _, d := range schema.Dimensions() {
		ask, has := j.Task.Resources.Of(d), s.each.Of(d)
		if ask <= has {
			continue
		}
		unit := Count
		if d != schema.CPUMilli {
			unit = Bytes
		}
		at, field := r.At, r.Field
		if given := p.Place(r.From, "task.resources."+string(d)); given != p.Origins[r.From] && strings.HasPrefix(given.Path, p.Dir+"/") {
			at, field = given, "task.resources."+string(d)
		}
		return []schema.Diagnostic{{
			Severity: schema.Error, Rule: schema.RuleNoEffect, Position: at, Field: r.From.Field() + "." + field,
			Message:  fmt.Sprintf("each task has %s %s, more than an alloc of %q, which has %s", d, amount(unit, ask), r.To.Declared(), amount(unit, has)),
			Expected: fmt.Sprintf("task.resources.%s of at most %s", d, amount(unit, has)),
			Hint:     fmt.Sprintf("request less, or increase resources of the alloc set (%s)", s.origin),
		}}
	}
	return nil
}

// most is how many names a message lists.
const most = 20

// missing says what is wrong with a reference, and what there is instead. It
// remembers hints by what is referred to: they are what takes time.
func (n Names) missing(r *schema.Reference, hints map[schema.ObjectKey]string) schema.Diagnostic {
	rule := ruleAt(r.From.Kind, r.Field)
	names := n.beside[scope(r.To)]
	name := r.To.Declared()
	hint, ok := hints[r.To]
	if !ok {
		hint = cmp.Or(didYouMean(name, slices.Concat(rule.Words, names), rule.Alias), declare(r.To.Kind, name))
		hints[r.To] = hint
	}
	return schema.Diagnostic{
		Severity: schema.Error, Rule: schema.RuleUndefined, Position: r.At, Field: r.From.Field() + "." + r.Field,
		Message: fmt.Sprintf("no %s %q is declared", r.To.Kind, name), Expected: expected(rule, r.To.Kind, names), Hint: hint,
	}
}

// expected says in words what a reference to an object of a kind may be.
func expected(r *Rule, kind schema.Kind, names []string) string {
	list := "there is none"
	if len(names) > 0 {
		list = quoted(names[:min(len(names), most)])
	}
	if len(names) > most {
		list += fmt.Sprintf(" and %d more", len(names)-most)
	}
	if r.Type == Priority {
		return fmt.Sprintf("%s, a declared priority (%s), or an integer from %d to %d", quoted(r.Words), list, r.Min, r.Max)
	}
	return fmt.Sprintf("the name of a declared %s (%s)", kind, list)
}

// declare says how to declare an object that is missing.
func declare(kind schema.Kind, name string) string {
	if kind == schema.KindSecret {
		return fmt.Sprintf("correct the name, or declare it as in secret: %q: muster.#Secret & {user: …, cell: …, age: …}; muster secret edit FILE makes the age file", name)
	}
	if kind == schema.KindPriority {
		return fmt.Sprintf("declare it in the root package or in cells/, as in priority: %q: muster.#Priority & {value: 250}", name)
	}
	return fmt.Sprintf("correct the name, or declare the %s", kind)
}

// ruleAt returns the rule of the field at a data path within an object. For a
// field that only another version has, it returns one without words.
func ruleAt(kind schema.Kind, field string) *Rule {
	r := Of(kind)
	for _, name := range strings.Split(field, ".") {
		if r == nil {
			break
		}
		if f := r.Field(name); f != nil {
			r = f.Rule
		} else if r.KeyRefers != "" {
			return &Rule{}
		} else {
			r = r.Elem
		}
	}
	return cmp.Or(r, &Rule{})
}
