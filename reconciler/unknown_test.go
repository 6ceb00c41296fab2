package reconciler_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// later is what a later release has written into every object of a document.
func later(v any, mark string) any {
	switch v := v.(type) {
	case map[string]any:
		for name := range v {
			switch name {
			case "packages", "ports", "avoid", "attributes", "origins": // maps by name, and not objects
			default:
				v[name] = later(v[name], mark)
			}
		}
		v["later"] = mark
	case []any:
		for i := range v {
			v[i] = later(v[i], mark)
		}
	}
	return v
}

// without removes what later added.
func without(v any) any {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "later")
		for name := range v {
			v[name] = without(v[name])
		}
	case []any:
		for i := range v {
			v[i] = without(v[i])
		}
	}
	return v
}

func parsed(t *testing.T, doc []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return v
}

// TestAfterLaterRelease runs two cells alike. A later release has led one of
// them meanwhile and has left fields in every object; the other one is the
// oracle. The two decide the same, and no field is lost while its object is
// there, whatever is rewritten around it.
func TestAfterLaterRelease(t *testing.T) {
	t.Parallel()
	story := func(c *cell, upgrade func(*cell)) {
		settle := func() {
			for range 30 {
				c.now = c.now.Add(time.Second)
				c.exchange()
				c.step()
			}
		}
		c.join("m1", 8, 16)
		c.join("m2", 8, 16)
		c.commit(compiled("c1", good(pkg(".", newQuota("q", "u", 10))), good(pkg("u", service("u", "web", 3, "v1"), service("u", "api", 2, "v1")))))
		settle()
		upgrade(c)
		settle()
		c.join("m1", 8, 16) // its record is made again
		for _, a := range c.agents {
			for _, s := range a.tasks {
				if s.Task.Short() == "u/web/1" {
					a.die(s, schema.Cause{Kind: schema.CauseFailed, Message: "crashed", At: c.now})
				}
			}
		}
		settle()
		c.commit(compiled("c2", good(pkg(".", newQuota("q", "u", 10))), good(pkg("u", service("u", "web", 4, "v2"), service("u", "api", 2, "v1"))), bad("v")))
		settle()
	}
	plain, upgraded := newCell(), newCell()
	story(plain, func(c *cell) { c.restart() })
	story(upgraded, func(c *cell) {
		for key, doc := range c.docs {
			if key != "counter" {
				c.docs[key] = schema.Canonical(later(parsed(t, doc), "of "+key))
			}
		}
		c.restart()
	})
	want, got := map[string]any{}, map[string]any{}
	for key, doc := range plain.docs {
		want[key] = parsed(t, doc)
	}
	for key, doc := range upgraded.docs {
		got[key] = without(parsed(t, doc))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("the cells differ (-alone +after a later release)\n%s", d)
	}
	for _, tt := range []struct{ key, field string }{
		{"machine/m1", ""},
		{"machine/m1", "capacity"},
		{"machine/m2", ""},
		{"job/u/web", ""},
		{"job/u/api", "origin"},
		{"head", ""},
		{"chunk/u/web/0", ""},
		{"chunk/u/web/0", "tasks 0"},
		{"chunk/u/web/0", "tasks 1"},
		{"chunk/u/api/0", "tasks 1"},
	} {
		v, path := parsed(t, upgraded.docs[tt.key]), tt.field
		if i := -1; strings.HasPrefix(path, "tasks ") {
			fmt.Sscanf(path, "tasks %d", &i)
			v = v.(map[string]any)["tasks"].([]any)[i]
		} else if path != "" {
			v = v.(map[string]any)[path]
		}
		if got := v.(map[string]any)["later"]; got != "of "+tt.key {
			t.Errorf("%s %s has %v", tt.key, tt.field, got)
		}
	}
	for key, doc := range plain.docs {
		for _, kind := range []string{"package/", "data/"} {
			if digest, ok := strings.CutPrefix(key, kind); ok && string(schema.DigestBytes(doc)) != digest {
				t.Errorf("%s has digest %s", key, schema.DigestBytes(doc))
			}
		}
	}
}

// Job data of a later release reaches machines with the digest of what this one
// sends: the link refuses any other.
func TestDataOfLaterRelease(t *testing.T) {
	t.Parallel()
	c := newCell()
	c.join("m1", 8, 16)
	c.commit(compiled("c1", good(pkg(".", newQuota("q", "u", 10))), good(pkg("u", service("u", "web", 1, "v1")))))
	c.exchange()
	c.step()
	want := model.View(c.state, "m1", nil).Assignments[0].Data
	// What refers to the data does so by its own digest.
	docs := map[string][]byte{}
	var old, its string
	for key, doc := range c.docs {
		if name, ok := strings.CutPrefix(key, "data/"); ok {
			doc = schema.Canonical(later(parsed(t, doc), "x"))
			old, its = name, string(schema.DigestBytes(doc))
			key = "data/" + its
		}
		docs[key] = doc
	}
	for key := range docs {
		docs[key] = bytes.ReplaceAll(docs[key], []byte(old), []byte(its))
	}
	s, err := model.Load("c", docs, lastFirst)
	if err != nil {
		t.Fatal(err)
	}
	a := model.View(s, "m1", nil).Assignments[0]
	if a.Data != want || schema.DigestOf(a.Job) != a.Data {
		t.Errorf("the machine is sent data %s, whose digest is %s: want %s", a.Data, schema.DigestOf(a.Job), want)
	}
}
