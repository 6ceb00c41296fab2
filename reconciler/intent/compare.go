package intent

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/sealed"
)

// Comparison is how the data of one commit differs from that of another: what
// `muster diff` prints.
type Comparison struct {
	Objects []ObjectChange `json:"objects"` // sorted by kind and name
	// Skipped are directories ("teams/ads") and objects ("job local/ads/db")
	// that cannot be compared, since one of the commits has mistakes there.
	Skipped []string `json:"skipped"`
	// Start, Stop and Restart count tasks, for a cell that runs the first
	// commit as it says; AtMost and Finished are as in ObjectChange.
	Start    int  `json:"start"`
	Stop     int  `json:"stop"`
	Restart  int  `json:"restart"`
	AtMost   bool `json:"atMost,omitempty"`
	Finished int  `json:"finished,omitempty"`
	// Held are the removals that a guard will hold, by cell.
	Held []CellHold `json:"held"`
	// Moving counts the machine objects that take the tasks of machines away, and
	// Warnings are about those that would start empty elsewhere.
	Moving   int                 `json:"moving"`
	Warnings []schema.Diagnostic `json:"warnings"`
}

// CellHold is what a guard of a cell will hold.
type CellHold struct {
	Cell string `json:"cell"`
	Hold
}

// The values of ObjectChange.Action.
const (
	Added   = "added"
	Removed = "removed"
	Changed = "changed"
)

// ObjectChange is one object that differs.
type ObjectChange struct {
	Kind   schema.Kind `json:"kind"`
	Name   string      `json:"name"` // as in schema.ObjectKey
	Action string      `json:"action"`
	// Change is the greatest of Fields; of a machine that is added, what that does
	// to its tasks.
	Change Change          `json:"change,omitempty"`
	Origin schema.Position `json:"origin"` // where it is declared; of a removed one, was
	Fields []ValueChange   `json:"fields,omitempty"`
	// Lost is what tasks that move do not find where they are then: see Change.
	Lost []string `json:"lost,omitempty"`
	// Start, Stop and Restart count the tasks of a job.
	Start   int `json:"start,omitempty"`
	Stop    int `json:"stop,omitempty"`
	Restart int `json:"restart,omitempty"`
	// AtMost says that not all that is counted in Stop and Restart needs to be there: which tasks
	// of a batch job have finished is not known.
	AtMost bool `json:"atMost,omitempty"`
	// Finished are the tasks that are not counted in Stop and Restart, since they have finished.
	Finished int `json:"finished,omitempty"`
	// Holds is what a machine holds whose tasks move; nil if that is not known.
	Holds *Holding `json:"holds,omitempty"`

	cell string // that it is of; "" of what holds in all
}

// ValueChange is one field that differs, with its values as JSON. In place of a ciphertext is for
// whom it is sealed: Old and New are the same if that is.
type ValueChange struct {
	FieldChange
	Old json.RawMessage `json:"old,omitempty"` // absent if the field was
	New json.RawMessage `json:"new,omitempty"` // absent if the field is
}

// Compare returns how the data of head differs from that of base, each taken by
// itself, as Check does. What has a mistake in either is left out of both. live is what a cell
// holds that runs about base, of which nothing else is compared; nil if none is known.
func Compare(base, head schema.Compiled, live *model.State) Comparison {
	was, is := declaredBy(base), declaredBy(head)
	skip := map[string]bool{}
	for _, side := range []declared{was, is} {
		maps.Copy(skip, side.wrong)
	}
	c := Comparison{Objects: []ObjectChange{}, Held: []CellHold{}, Warnings: []schema.Diagnostic{}, Skipped: append([]string{}, slices.Sorted(maps.Keys(skip))...)}
	if skip["."] && (hasError(base.Diagnostics) || hasError(head.Diagnostics)) {
		return c // nothing of it can be read
	}
	keys := map[schema.ObjectKey]bool{}
	for _, side := range []declared{was, is} {
		for key, o := range side.objects {
			keys[key] = keys[key] || skip[key.String()] || skip[path.Dir(o.origin.Path)]
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(keys), schema.ObjectKey.Compare) {
		o := compareObject(key, was.objects[key], is.objects[key])
		if keys[key] || o.Action == "" {
			continue
		}
		o.cell = cellOf(key, cmp.Or(is.objects[key], was.objects[key]).value)
		o.settle(jobIn(was.objects[key].value), jobIn(is.objects[key].value), live)
		if m, ok := is.objects[key].value.(*schema.Machine); ok && o.Change == Move {
			o.Holds = holding(m, is.objects, live)
			c.Warnings = append(c.Warnings, leavesSticky(m, o.Origin, is.jobs())...)
		}
		c.Objects = append(c.Objects, o)
	}
	if len(skip) > 0 || slices.ContainsFunc(c.Objects, func(o ObjectChange) bool { return o.takesAway(was, is) }) {
		for _, cell := range was.cells() {
			for _, h := range heldIn(cell, base, head, live) {
				c.Held = append(c.Held, CellHold{cell, h})
			}
		}
	}
	c.Sum()
	return c
}

// Sum counts anew what Objects do.
func (c *Comparison) Sum() {
	c.Start, c.Stop, c.Restart, c.AtMost, c.Finished, c.Moving = 0, 0, 0, false, 0, 0
	for i := range c.Objects {
		o := &c.Objects[i]
		c.Start, c.Stop, c.Restart = c.Start+o.Start, c.Stop+o.Stop, c.Restart+o.Restart
		c.AtMost, c.Finished = c.AtMost || o.AtMost, c.Finished+o.Finished
		if o.Kind == schema.KindMachine && o.Action != Removed && o.Change == Move {
			c.Moving++
		}
	}
}

// In returns what of a comparison is of a cell, and what holds in all cells: tenants and
// priorities, and directories that cannot be compared.
func (c *Comparison) In(cell string) Comparison {
	out := *c
	out.Objects = slices.DeleteFunc(slices.Clone(c.Objects), func(o ObjectChange) bool { return o.cell != "" && o.cell != cell })
	out.Held = slices.DeleteFunc(slices.Clone(c.Held), func(h CellHold) bool { return h.Cell != cell })
	out.Warnings = slices.DeleteFunc(slices.Clone(c.Warnings), func(d schema.Diagnostic) bool {
		return !slices.ContainsFunc(out.Objects, func(o ObjectChange) bool { return o.Origin == d.Position })
	})
	out.Skipped = slices.DeleteFunc(slices.Clone(c.Skipped), func(s string) bool {
		kind, name, isObject := strings.Cut(s, " ")
		of := ""
		if isObject {
			of = cellOf(schema.ObjectKey{Kind: schema.Kind(kind), Name: name}, nil)
		}
		return of != "" && of != cell
	})
	out.Sum()
	return out
}

// cellOf returns the cell that an object is of, "" if it holds in all, or that is not known.
func cellOf(key schema.ObjectKey, value any) string {
	switch key.Kind {
	case schema.KindCell:
		return key.Name
	case schema.KindQuota:
		if q, ok := value.(*schema.Quota); ok {
			return q.Cell
		}
	case schema.KindJob, schema.KindAllocSet, schema.KindSecret, schema.KindService, schema.KindMachine:
		cell, _, _ := strings.Cut(key.Name, "/")
		return cell
	}
	return ""
}

// heldIn returns what guards hold in a cell that runs all that base declares, when
// it takes head, with the tasks that live has of it.
func heldIn(cell string, base, head schema.Compiled, live *model.State) []Hold {
	s := model.NewState(cell)
	take := func(c schema.Compiled) bool {
		a, _ := adopt(s, Of(s), c, time.Time{})
		return s.Apply(a.Writes) == nil // they were made for it
	}
	if !take(base) {
		return nil
	}
	for name, j := range Of(s).Jobs {
		s.Data[j.Digest] = j.Job
		s.Jobs[name] = &schema.JobRecord{Name: name, Admitted: j.Digest, Origin: j.Origin}
	}
	if live != nil && live.Cell == cell {
		s.ShareChunks(live)
	}
	if !take(head) {
		return nil
	}
	return HoldsOf(s.Head.Held)
}

// declared is what one commit declares by itself.
type declared struct {
	objects map[schema.ObjectKey]declaredObject
	wrong   map[string]bool // directories and objects with mistakes
}

// cells returns the cells of the jobs and alloc sets, sorted.
func (d *declared) cells() []string {
	names := map[string]bool{}
	for _, o := range d.objects {
		if j := jobIn(o.value); j != nil {
			names[j.Cell] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// jobs returns the jobs.
func (d *declared) jobs() []*schema.Job {
	var out []*schema.Job
	for _, o := range d.objects {
		if j, ok := o.value.(*schema.Job); ok {
			out = append(out, j)
		}
	}
	return out
}

// declaredObject is an object, and where it is declared; the zero value is none.
type declaredObject struct {
	value  any
	origin schema.Position
}

func declaredBy(c schema.Compiled) declared {
	a := newAdoption(nil)
	d := declared{objects: map[schema.ObjectKey]declaredObject{}, wrong: map[string]bool{}}
	if hasError(c.Diagnostics) {
		d.wrong["."] = true
		return d
	}
	a.take(c.Packages)
	for dir := range a.stale {
		d.wrong[dir] = true
	}
	packages := model.InOrder(a.packages)
	r := resolverOf(packages)
	for _, p := range packages {
		o, wrong := r.objects(p)
		for key := range wrong {
			d.wrong[key.String()] = true
		}
		o.Each(func(key schema.ObjectKey, value any) {
			d.objects[key] = declaredObject{value, p.Origins[key]}
		})
	}
	return d
}

// compareObject returns the change of one object; without Action, there is none.
func compareObject(key schema.ObjectKey, was, is declaredObject) ObjectChange {
	o := ObjectChange{Kind: key.Kind, Name: key.Name, Origin: is.origin}
	old, next := jobIn(was.value), jobIn(is.value)
	switch {
	case was.value == nil:
		o.Action = Added
		if next != nil {
			o.Start = next.Tasks
		}
		if words := machineWords(&schema.Machine{}, is.value); len(words) > 0 {
			o.Change = Move
		}
		return o
	case is.value == nil:
		o.Action, o.Origin = Removed, was.origin
		if old != nil {
			o.Stop = old.Tasks
		}
		return o
	}
	if reflect.DeepEqual(was.value, is.value) { // as nearly all are: no need to write them as JSON
		return o
	}
	var words []FieldChange
	o.Change = InPlace
	if old != nil {
		o.Change, words = Diff(old, next)
		o.Start, o.Stop = max(0, next.Tasks-old.Tasks), max(0, old.Tasks-next.Tasks)
		if order[o.Change] > order[Resize] {
			o.Restart = min(old.Tasks, next.Tasks)
		}
		if slices.ContainsFunc(words, func(f FieldChange) bool { return f.Change == Move }) && old.Kind != schema.System {
			o.Lost = lostByMove(&old.Task)
		}
	}
	if m, ok := was.value.(*schema.Machine); ok {
		if words = machineWords(m, is.value); len(words) > 0 {
			o.Change = Move
		}
	}
	if o.Fields = compareFields(was.value, is.value, words); len(o.Fields) > 0 {
		o.Action = Changed
	}
	return o
}

// machineWords returns the fields of a machine that take its tasks away, where
// that is news.
func machineWords(was *schema.Machine, is any) []FieldChange {
	next, ok := is.(*schema.Machine)
	if !ok {
		return nil
	}
	var d differences
	d.field(next.Drain != nil && Differ(was.Drain, next.Drain), "drain", Move)
	d.field(next.Gone && !was.Gone, "gone", Move)
	return d
}

// takesAway reports whether a guard may hold a change of this object. Most commits have no such
// change, and what guards hold of them takes as long to find out as all else that differs.
func (o *ObjectChange) takesAway(was, is declared) bool {
	key := schema.ObjectKey{Kind: o.Kind, Name: o.Name}
	old, next := jobIn(was.objects[key].value), jobIn(is.objects[key].value)
	return old != nil && (next == nil || removes(old, next))
}

// jobIn returns the job that an object is, or stands for: nil if none.
func jobIn(object any) *schema.Job {
	switch o := object.(type) {
	case *schema.Job:
		return o
	case *schema.AllocSet:
		return o.Job()
	}
	return nil
}

// compareFields returns the fields whose values differ. words says what that
// does to tasks; a field that none of them covers is in place.
func compareFields(was, is any, words []FieldChange) []ValueChange {
	old, next := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	flatten(old, "", schema.Canonical(was))
	flatten(next, "", schema.Canonical(is))
	paths := maps.Clone(old)
	maps.Copy(paths, next)
	var out []ValueChange
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if bytes.Equal(old[path], next[path]) {
			continue
		}
		v := ValueChange{FieldChange{path, InPlace}, old[path], next[path]}
		if ciphertext(was, path) {
			v.Old, v.New = sealedWords(v.Old), sealedWords(v.New)
		}
		for _, w := range words {
			if path == w.Field || strings.HasPrefix(path, w.Field+".") {
				v.Change = w.Change
			}
		}
		out = append(out, v)
	}
	return out
}

// flatten puts the values of a JSON document into out, by their data path; a
// list is one value.
func flatten(out map[string]json.RawMessage, path string, doc json.RawMessage) {
	var fields map[string]json.RawMessage
	if !bytes.HasPrefix(doc, []byte("{")) || json.Unmarshal(doc, &fields) != nil {
		out[path] = doc
		return
	}
	for name, value := range fields {
		at := schema.Label(name)
		if path != "" {
			at = path + "." + at
		}
		flatten(out, at, value)
	}
}

// ciphertext reports whether a path in the data of an object leads to a secret as it is sealed.
func ciphertext(object any, path string) bool {
	_, secret := object.(*schema.Secret)
	field := path[strings.LastIndexByte(path, '.')+1:]
	return (secret || strings.Contains(path, ".sealed.")) && (field == "age" || field == "sops")
}

// sealedWords says for whom a secret is sealed, as JSON; nil for none.
func sealedWords(value json.RawMessage) json.RawMessage {
	var text string
	if value == nil || json.Unmarshal(value, &text) != nil {
		return value
	}
	words := "a SOPS file"
	if h, err := sealed.Inspect(text); err == nil {
		words = cmp.Or(h.Owner, "nobody") + ", " + schema.Count(len(h.Recipients), "recipient")
	}
	return schema.Canonical(words)
}
