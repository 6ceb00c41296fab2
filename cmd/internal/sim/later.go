package sim

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// laterField is what only a later release knows of a document.
const laterField = "fromLater"

// goesBack has the cell be led by a later release for a while, which writes what this
// one does not know. Then somebody goes back to this one.
func (w *World) goesBack(a Action) bool {
	return w.until(&w.laterUntil, between(a.N, 2, 20), "a later release leads")
}

// turnRelease ends the time of a later release.
func (w *World) turnRelease() {
	if w.laterUntil.IsZero() || w.now.Before(w.laterUntil) {
		return
	}
	w.laterUntil = time.Time{}
	w.note("somebody goes back to this release")
	w.endMaster()
}

// later returns writes as a later release does them.
func (w *World) later(writes []model.Write) []model.Write {
	if !w.now.Before(w.laterUntil) {
		w.checkKept(writes)
		return writes
	}
	out := make([]model.Write, len(writes))
	for i, x := range writes {
		if out[i] = x; !keepsUnknown(x.Key) {
			continue
		}
		if delete(w.oracle.later, x.Key); x.Value == nil {
			continue
		}
		doc := treeOf(x.Value)
		mark(doc)
		out[i].Value = schema.Canonical(doc)
		w.oracle.later[x.Key] = out[i].Value
	}
	return out
}

// keepsUnknown reports whether a document is rewritten, with what another release wrote.
// Data and packages are never rewritten.
func keepsUnknown(key string) bool {
	for _, kind := range []string{model.KeyJob, model.KeyChunk, model.KeyMachine} {
		if strings.HasPrefix(key, kind) {
			return true
		}
	}
	return key == model.KeyHead
}

func treeOf(doc []byte) map[string]any {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	out := map[string]any{}
	if err := d.Decode(&out); err != nil {
		panic(err) // it is what a master writes
	}
	return out
}

// findLater takes what the store has of a later release.
func (o *oracle) findLater(docs map[string][]byte) {
	clear(o.later)
	for key, doc := range docs {
		if keepsUnknown(key) && bytes.Contains(doc, []byte(laterField)) {
			o.later[key] = doc
		}
	}
}

// mark gives a document, and the tasks in it, a field of a later release.
func mark(doc map[string]any) {
	doc[laterField] = true
	tasks, _ := doc["tasks"].([]any)
	for _, t := range tasks {
		if t, ok := t.(map[string]any); ok {
			t[laterField] = true
		}
	}
}

// checkKept: what a later release wrote into a document stays there when this one
// rewrites it, so that it is there when somebody goes forward again.
func (w *World) checkKept(writes []model.Write) {
	for _, x := range writes {
		was := w.oracle.later[x.Key]
		switch {
		case was == nil:
			continue
		case x.Value == nil:
			delete(w.oracle.later, x.Key)
			continue
		}
		is, before := treeOf(x.Value), treeOf(was)
		if is[laterField] == nil && before[laterField] != nil {
			w.violate("document %s loses what a later release wrote", x.Key)
		}
		marked := map[string]bool{}
		for _, t := range tasksIn(before) {
			marked[string(schema.Canonical(t["index"]))] = t[laterField] != nil
		}
		for _, t := range tasksIn(is) {
			if index := string(schema.Canonical(t["index"])); marked[index] && t[laterField] == nil {
				w.violate("document %s loses what a later release wrote of task %s", x.Key, index)
			}
		}
		w.oracle.later[x.Key] = x.Value
	}
}

func tasksIn(doc map[string]any) []map[string]any {
	var out []map[string]any
	tasks, _ := doc["tasks"].([]any)
	for _, t := range tasks {
		if t, ok := t.(map[string]any); ok {
			out = append(out, t)
		}
	}
	return out
}
