package compile_test

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile"
)

// memory is a Store.
type memory struct {
	mu     sync.Mutex // guards what follows
	data   map[string][]byte
	loaded int
	saved  int
}

func (m *memory) Load(key string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loaded++
	return m.data[key]
}

func (m *memory) Save(key string, data []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.saved++
	m.data[key] = bytes.Clone(data)
}

// compiledWith returns what a new compiler with a store makes of a tree, as text.
func compiledWith(t *testing.T, exe string, m *memory, tr schema.Tree) string {
	t.Helper()
	cfg := compile.Config{Exe: exe, Args: []string{childArg}}
	if m != nil {
		cfg.Store = m
	}
	out, err := compile.New(cfg).Compile(t.Context(), tr)
	if err != nil {
		t.Fatal(err)
	}
	return string(schema.Canonical(out))
}

// TestStore: a further compiler gives the same bytes without starting a child, for good
// packages and bad ones, and evaluates only what changed.
func TestStore(t *testing.T) {
	t.Parallel()
	files := mixed()
	files["cells/policies.cue"] = `package cells

_policy: few: {
	paths: ["teams/nobody"] // which is said again with each commit
	message: "at most 100 tasks"
	job: tasks: <=100
}
`
	m := &memory{data: map[string][]byte{}}
	want := compiledWith(t, self(t), nil, tree(files))
	if got := compiledWith(t, self(t), m, tree(files)); got != want {
		t.Error("with an empty store the outcome is another one")
	}
	saved := m.saved
	if got := compiledWith(t, "/nonexistent", m, tree(files)); got != want {
		t.Error("from the store the outcome is another one")
	}
	if m.saved != saved || saved < 8 {
		t.Errorf("%d packages were saved, then %d more", saved, m.saved-saved)
	}
	changed := maps.Clone(files)
	for name := range changed {
		if strings.HasPrefix(name, "teams/t2/") {
			changed[name] += "\n// a comment\n"
		}
	}
	if compiledWith(t, self(t), m, tree(changed)) != compiledWith(t, self(t), nil, tree(changed)) {
		t.Error("after a change the outcome is another one")
	}
	if m.saved != saved+1 {
		t.Errorf("%d packages were compiled for a change of one", m.saved-saved)
	}
}

// TestStoreDamaged: whatever a store gives back, the outcome is the same.
func TestStoreDamaged(t *testing.T) {
	t.Parallel()
	files := mixed()
	m := &memory{data: map[string][]byte{}}
	want := compiledWith(t, self(t), m, tree(files))
	good := maps.Clone(m.data)
	keys := slices.Sorted(maps.Keys(good))
	for what, damage := range map[string]func(i int, b []byte) []byte{
		"empty":    func(int, []byte) []byte { return []byte{} },
		"cut":      func(_ int, b []byte) []byte { return b[:len(b)/2] },
		"longer":   func(_ int, b []byte) []byte { return append(b, 'x') },
		"a bit":    func(i int, b []byte) []byte { b[(i*7919)%len(b)] ^= 1; return b },
		"no lines": func(_ int, b []byte) []byte { return bytes.ReplaceAll(b, []byte("\n"), nil) },
		"another":  func(i int, _ []byte) []byte { return bytes.Clone(good[keys[(i+1)%len(keys)]]) },
	} {
		m.data = map[string][]byte{}
		for i, k := range keys {
			m.data[k] = damage(i, bytes.Clone(good[k]))
		}
		if got := compiledWith(t, self(t), m, tree(files)); got != want {
			t.Errorf("%s: the outcome is another one", what)
		}
	}
}
