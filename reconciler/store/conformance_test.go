package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/reconciler/model"
)

// medium is what documents survive on, under the conformance tests.
type medium interface {
	// open returns one more Store on it; several live side by side.
	open(t *testing.T, cell string) (*Store, error)
	// restart closes all that is open, as if the process had ended.
	restart(t *testing.T)
}

func TestConformance(t *testing.T) {
	t.Parallel()
	media := map[string]func(*testing.T) medium{
		"memory":   func(*testing.T) medium { return memoryMedium{NewMemory()} },
		"embedded": func(t *testing.T) medium { return &embeddedMedium{dir: t.TempDir()} },
		"cluster":  func(t *testing.T) medium { return &clusterMedium{cluster: startCluster(t, 1)} },
	}
	tests := map[string]func(*testing.T, medium){
		"documents":      testDocuments,
		"by prefix":      testByPrefix,
		"limits":         testLimits,
		"coalescing":     testCoalescing,
		"fencing":        testFencing,
		"resign":         testResign,
		"cancelled":      testCancelled,
		"paging":         testPaging,
		"large":          testLarge,
		"large, fenced":  testLargeFenced,
		"large, again":   testLargeNextTerm,
		"orphan pieces":  testOrphans,
		"damaged piece":  testDamaged,
		"restart":        testRestart,
		"another cell":   testForeign,
		"newer format":   testNewer,
		"older format":   testOlder,
		"every write":    testEveryWrite,
		"closed":         testClosed,
		"identity fixed": testIdentityFixed,
	}
	for name, medium := range media {
		for what, test := range tests {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				test(t, medium(t))
			})
		}
	}
}

type memoryMedium struct{ *Memory }

func (m memoryMedium) open(_ *testing.T, cell string) (*Store, error) { return m.Open(cell) }
func (m memoryMedium) restart(*testing.T)                             {}

type embeddedMedium struct {
	dir   string
	first *Store
}

// sharedBackend is a further Store on a running server; only the first Store
// stops it.
type sharedBackend struct{ *etcdBackend }

func (sharedBackend) close() error { return nil }

func (m *embeddedMedium) open(t *testing.T, cell string) (*Store, error) {
	if m.first != nil {
		be := sharedBackend{m.first.be.(*etcdBackend)}
		return open(t.Context(), be, identity{Cell: cell, Format: layout}, "v0.9.0-test")
	}
	s, err := OpenEmbedded(t.Context(), EmbeddedConfig{Dir: m.dir, Cell: cell, Log: testLog(t)})
	if err == nil {
		m.first = s
		t.Cleanup(func() { closeStore(t, s) })
	}
	return s, err
}

func (m *embeddedMedium) restart(t *testing.T) {
	closeStore(t, m.first)
	m.first = nil
}

func closeStore(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// leader opens a Store on m, campaigns and loads.
func leader(t *testing.T, m medium, id string) *Store {
	t.Helper()
	s, err := m.open(t, "c")
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	lead(t, s, id)
	return s
}

func lead(t *testing.T, s *Store, id string) {
	t.Helper()
	if err := s.Campaign(t.Context(), id); err != nil {
		t.Fatalf("Campaign: %v", err)
	}
	load(t, s)
}

// load returns the documents but for the identity.
func load(t *testing.T, s *Store) map[string][]byte {
	t.Helper()
	docs, err := s.Load(t.Context())
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	if _, there := docs[identityKey]; !there {
		t.Fatalf("Load: no identity")
	}
	delete(docs, identityKey)
	return docs
}

func commit(t *testing.T, s *Store, writes ...model.Write) {
	t.Helper()
	if err := s.Commit(t.Context(), writes); err != nil {
		t.Fatalf("Commit: %v", err)
	}
}

func put(key, value string) model.Write {
	return model.Write{Key: key, Value: []byte(value)}
}

func del(key string) model.Write { return model.Write{Key: key} }

// wantDocs compares what s loads; values are given as strings.
func wantDocs(t *testing.T, s *Store, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for key, value := range load(t, s) {
		got[key] = string(value)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("documents: (-want +got)\n%s", diff)
	}
}

func isLost(s *Store) bool { return !s.leading() }

func testDocuments(t *testing.T, m medium) {
	s := leader(t, m, "one")
	wantDocs(t, s, map[string]string{})
	commit(t, s, put("a", "1"), put("job/u/j", "{}"), put("empty", ""))
	commit(t, s, put("a", "2"), del("job/u/j"), del("never/was"), put("ab", "3"))
	commit(t, s)
	wantDocs(t, s, map[string]string{"a": "2", "ab": "3", "empty": ""})
	value := []byte("mine")
	commit(t, s, model.Write{Key: "a", Value: value})
	value[0] = 'M' // the store keeps no hold on what it was given
	wantDocs(t, s, map[string]string{"a": "mine", "ab": "3", "empty": ""})
}

func testByPrefix(t *testing.T, m medium) {
	s, err := m.open(t, "c")
	if err != nil {
		t.Fatal(err)
	}
	if docs, err := s.Documents(t.Context(), "token/"); err != nil || len(docs) != 0 {
		t.Errorf("in an empty store: %v, %v", docs, err)
	}
	if err := s.Campaign(t.Context(), "me"); err != nil {
		t.Fatal(err)
	}
	large := bytes.Repeat([]byte("x"), maxBytes+1)
	if err := s.Commit(t.Context(), []model.Write{
		{Key: "token/a", Value: []byte("1")},
		{Key: "token/b", Value: []byte("2")},
		{Key: "tokens", Value: []byte("3")},
		{Key: "large/a", Value: large},
	}); err != nil {
		t.Fatal(err)
	}
	docs, err := s.Documents(t.Context(), "token/")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string][]byte{"token/a": []byte("1"), "token/b": []byte("2")}, docs); d != "" {
		t.Error(d)
	}
	if _, err := s.Documents(t.Context(), "large/"); err == nil || !strings.Contains(err.Error(), `document "large/a": it is in pieces`) {
		t.Errorf("a large one: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Documents(t.Context(), ""); !errors.Is(err, errClosed) {
		t.Errorf("closed: %v", err)
	}
}

func testLimits(t *testing.T, m medium) {
	s := leader(t, m, "one")
	var many []model.Write
	for i := range maxOps + 1 {
		many = append(many, put(fmt.Sprint(i), "x"))
	}
	half := string(make([]byte, maxBytes/2))
	tests := []struct {
		name   string
		writes []model.Write
		want   string
	}{
		{"operations", many, "129 operations in one transaction: at most 128"},
		{"bytes", []model.Write{put("a", half), put("b", half)}, "1048578 bytes in one transaction: at most 1048576"},
		{"no key", []model.Write{put("a", ""), put("", "x")}, `key ""`},
		{"long key", []model.Write{put(strings.Repeat("k", maxKey+1), "x")}, "want 1 to 1024 bytes"},
		{"absolute key", []model.Write{put("/a", "x")}, `key "/a"`},
		{"huge", []model.Write{{Key: "a", Value: make([]byte, maxValue+1)}}, `document "a": 268435457 bytes`},
	}
	for _, tt := range tests {
		err := s.Commit(t.Context(), tt.writes)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
	if isLost(s) {
		t.Error("a refused batch took leadership away")
	}
	commit(t, s, many[:maxOps]...)
	if got := len(load(t, s)); got != maxOps {
		t.Errorf("%d documents after a full transaction, want %d", got, maxOps)
	}
}

func testCoalescing(t *testing.T, m medium) {
	s := leader(t, m, "one")
	commit(t, s, put("a", "1"), put("b", "1"), put("a", "2"), del("b"), del("c"), put("c", "3"))
	wantDocs(t, s, map[string]string{"a": "2", "c": "3"})
}

func testFencing(t *testing.T, m medium) {
	reader, err := m.open(t, "c")
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	if err := reader.Commit(t.Context(), []model.Write{put("a", "0")}); !errors.Is(err, ErrNotLeader) || !isLost(reader) {
		t.Errorf("Commit without Campaign: %v, want ErrNotLeader", err)
	}
	first := leader(t, m, "same")
	commit(t, first, put("a", "1"))
	second := leader(t, m, "same") // the id does not distinguish them
	if isLost(first) {
		t.Error("the first knows that it was fenced without having asked")
	}
	lost := first.Lost()
	if err := first.Commit(t.Context(), []model.Write{put("a", "2"), put("b", "2")}); !errors.Is(err, ErrNotLeader) {
		t.Errorf("Commit of the fenced: %v, want ErrNotLeader", err)
	}
	<-lost
	wantDocs(t, reader, map[string]string{"a": "1"})
	commit(t, second, put("a", "3"))
	lead(t, first, "same")
	commit(t, first, put("b", "4"))
	if err := second.Commit(t.Context(), []model.Write{del("a")}); !errors.Is(err, ErrNotLeader) || !isLost(second) {
		t.Errorf("Commit of the fenced: %v, want ErrNotLeader", err)
	}
	wantDocs(t, reader, map[string]string{"a": "3", "b": "4"})
}

func testResign(t *testing.T, m medium) {
	first, second := leader(t, m, "one"), leader(t, m, "two")
	if err := first.Resign(t.Context()); err != nil { // is fenced, and may not unseat the second
		t.Fatalf("Resign: %v", err)
	}
	commit(t, second, put("a", "1"))
	if err := second.Resign(t.Context()); err != nil {
		t.Fatalf("Resign: %v", err)
	}
	for _, s := range []*Store{first, second} {
		if err := s.Commit(t.Context(), []model.Write{put("a", "2")}); !errors.Is(err, ErrNotLeader) || !isLost(s) {
			t.Errorf("Commit after Resign: %v, want ErrNotLeader", err)
		}
	}
	lead(t, first, "one")
	wantDocs(t, first, map[string]string{"a": "1"})
}

func testCancelled(t *testing.T, m medium) {
	s := leader(t, m, "one")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Commit(ctx, []model.Write{put("a", "1")}); !errors.Is(err, context.Canceled) {
		t.Fatalf("Commit: %v, want context.Canceled", err)
	}
	if !isLost(s) {
		t.Error("the outcome is unknown, and still it leads")
	}
	if err := s.Commit(t.Context(), []model.Write{put("a", "1")}); !errors.Is(err, ErrNotLeader) {
		t.Errorf("Commit: %v, want ErrNotLeader", err)
	}
	lead(t, s, "one")
	commit(t, s, put("b", "1"))
}

func testPaging(t *testing.T, m medium) {
	s := leader(t, m, "one")
	want := map[string]string{}
	var writes []model.Write
	for i := range 2*pageSize + 7 {
		key, value := fmt.Sprintf("chunk/u/j%d/%d", i%10, i), strings.Repeat("v", i%50)
		want[key] = value
		writes = append(writes, put(key, value))
	}
	for _, batch := range model.Batches(writes) {
		commit(t, s, batch...)
	}
	wantDocs(t, s, want)
}

// noise does not compress and no two pieces of it are equal.
func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// storedPieces counts what is under the prefix of pieces.
func storedPieces(t *testing.T, s *Store) int {
	t.Helper()
	n := 0
	err := s.be.scan(t.Context(), s.piecePrefix(), func(string, []byte) error { n++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func wantLarge(t *testing.T, s *Store, want map[string][]byte) {
	t.Helper()
	got := load(t, s)
	if len(got) != len(want) {
		t.Fatalf("%d documents, want %d", len(got), len(want))
	}
	for key := range want {
		if !bytes.Equal(got[key], want[key]) {
			t.Errorf("document %q: %d bytes that are not the %d stored", key, len(got[key]), len(want[key]))
		}
	}
}

func testLarge(t *testing.T, m medium) {
	s := leader(t, m, "one")
	big, bigger := noise(1, 2<<20+5), noise(1, 3<<20+1) // the first two pieces are the same
	commit(t, s, model.Write{Key: "a", Value: big}, put("small", "x"))
	commit(t, s, model.Write{Key: "b", Value: bigger})
	wantLarge(t, s, map[string][]byte{"a": big, "b": bigger, "small": []byte("x")})
	if got := storedPieces(t, s); got != 5 {
		t.Errorf("%d pieces stored, want 2 shared, 1 of a, 2 of b", got)
	}
	other := leader(t, m, "two")
	wantLarge(t, other, map[string][]byte{"a": big, "b": bigger, "small": []byte("x")})
	commit(t, other, put("b", "small now"))
	if got := storedPieces(t, other); got != 3 {
		t.Errorf("%d pieces after b shrank, want 3", got)
	}
	commit(t, other, del("a"))
	if got := storedPieces(t, other); got != 0 {
		t.Errorf("%d pieces after a is gone, want 0", got)
	}
	edge := noise(2, maxBytes-len("edge")) // the largest that is not split
	commit(t, other, model.Write{Key: "edge", Value: edge})
	if got := storedPieces(t, other); got != 0 {
		t.Errorf("a document at the limit was split")
	}
	wantLarge(t, other, map[string][]byte{"b": []byte("small now"), "small": []byte("x"), "edge": edge})
}

func testLargeFenced(t *testing.T, m medium) {
	first, second := leader(t, m, "one"), leader(t, m, "two")
	err := first.Commit(t.Context(), []model.Write{{Key: "a", Value: noise(1, 2<<20)}})
	if !errors.Is(err, ErrNotLeader) {
		t.Errorf("Commit of the fenced: %v, want ErrNotLeader", err)
	}
	if got := storedPieces(t, second); got != 0 {
		t.Errorf("the fenced stored %d pieces", got)
	}
}

// What a leader knew of pieces ends with its term: another may have swept them.
func testLargeNextTerm(t *testing.T, m medium) {
	big := model.Write{Key: "a", Value: noise(1, 2<<20)}
	first := leader(t, m, "one")
	commit(t, first, big)
	commit(t, leader(t, m, "two"), del("a"))
	if err := first.Campaign(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	commit(t, first, big)
	wantLarge(t, first, map[string][]byte{"a": big.Value})
}

func testOrphans(t *testing.T, m medium) {
	s := leader(t, m, "one")
	// As a leader that died between the pieces and the document.
	if _, err := s.writePieces(t.Context(), noise(1, 3<<20)); err != nil {
		t.Fatal(err)
	}
	next := leader(t, m, "two")
	if got := storedPieces(t, next); got != 3 {
		t.Fatalf("%d pieces, want 3", got)
	}
	commit(t, next, model.Write{Key: "a", Value: noise(1, 2<<20)}) // takes two of them up
	if got := storedPieces(t, next); got != 2 {
		t.Errorf("%d pieces after a Commit, want 2", got)
	}
	wantLarge(t, next, map[string][]byte{"a": noise(1, 2<<20)})
}

func testDamaged(t *testing.T, m medium) {
	s := leader(t, m, "one")
	commit(t, s, model.Write{Key: "a", Value: noise(1, 2<<20)})
	var key string
	err := s.be.scan(t.Context(), s.piecePrefix(), func(k string, _ []byte) error { key = k; return nil })
	if err != nil {
		t.Fatal(err)
	}
	overwrite := func(value []byte, want string) {
		t.Helper()
		if err := s.fenced(t.Context(), "test", []op{{key, value}}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Load(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load: %v, want %q", err, want)
		}
	}
	overwrite([]byte("1dother"), "is damaged")
	overwrite(nil, `document "a": piece `)
}

func testRestart(t *testing.T, m medium) {
	s := leader(t, m, "one")
	big := noise(1, 2<<20)
	commit(t, s, put("a", "1"), put("gone", "1"), model.Write{Key: "big", Value: big})
	commit(t, s, del("gone"))
	before, err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m.restart(t)
	s, err = m.open(t, "c")
	if err != nil {
		t.Fatalf("open again: %v", err)
	}
	if !isLost(s) {
		t.Error("leads without Campaign")
	}
	after, err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, after, cmp.Comparer(bytes.Equal)); diff != "" {
		t.Errorf("documents after a restart, identity included: (-want +got)\n%s", diff)
	}
	lead(t, s, "two")
	commit(t, s, put("a", "2"), del("big"))
	wantDocs(t, s, map[string]string{"a": "2"})
}

func testForeign(t *testing.T, m medium) {
	s := leader(t, m, "one")
	commit(t, s, put("a", "1"))
	_, err := m.open(t, "d")
	var foreign *ForeignError
	if !errors.As(err, &foreign) || foreign.Owner != "c" || foreign.Cell != "d" {
		t.Fatalf("open as cell d: %v, want ForeignError", err)
	}
	if !strings.Contains(err.Error(), `belongs to cell "c", not "d"`) || !strings.Contains(err.Error(), "\nhint: ") {
		t.Errorf("error %q", err)
	}
	commit(t, s, put("b", "1"))
	wantDocs(t, s, map[string]string{"a": "1", "b": "1"})
	for _, cell := range []string{"", "a/b"} {
		if _, err := m.open(t, cell); err == nil {
			t.Errorf("opened cell %q", cell)
		}
	}
}

func testNewer(t *testing.T, m medium) {
	s := leader(t, m, "one")
	for value, want := range map[string]string{
		"3dv9.1.0\nnew":                 "document \"x\" was written by muster v9.1.0 in format 3, and this release reads formats up to 2\nhint: start muster v9.1.0 or a later one",
		"3d" + strings.Repeat("x", 200): `document "x" was written by a later release in format 3`,
		"2dv1.0.0":                      `document "x": stored value has no envelope`,
		"0d\n":                          `document "x": stored value has no envelope`,
		"1?":                            `document "x": stored in unknown form '?'`,
		"1":                             `document "x": stored value of 1 bytes has no envelope`,
		"1pxyz":                         `document "x": list of pieces: `,
	} {
		if err := s.fenced(t.Context(), "test", []op{{s.docPrefix() + "x", []byte(value)}}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Load(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load of %q: %v, want %q", value, err, want)
		}
	}
	id := `1d{"cell":"c","id":"x","format":2}`
	if err := s.fenced(t.Context(), "test", []op{{s.docPrefix() + identityKey, []byte(id)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.open(t, "c"); err == nil || !strings.Contains(err.Error(), "newer release (layout 2, this one knows 1)") {
		t.Errorf("open of a newer layout: %v", err)
	}
}

// What was stored before documents named their release is read, and rewritten
// with the name.
func testOlder(t *testing.T, m medium) {
	s := leader(t, m, "one")
	commit(t, s, model.Write{Key: "big", Value: noise(1, 2<<20)})
	var old []op
	err := s.be.scan(t.Context(), "/muster", func(key string, value []byte) error {
		form, doc, err := decode(key, value)
		if key != s.leaderKey() {
			old = append(old, op{key, slices.Concat([]byte{formatBare, form}, doc)})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	old = append(old, op{s.docPrefix() + "a", []byte("1d{}")})
	for _, o := range old {
		if err := s.fenced(t.Context(), "test", []op{o}); err != nil {
			t.Fatal(err)
		}
	}
	next := leader(t, m, "two")
	wantLarge(t, next, map[string][]byte{"a": []byte("{}"), "big": noise(1, 2<<20)})
	commit(t, next, put("a", "{}"))
	err = next.be.scan(t.Context(), next.docPrefix()+"a", func(_ string, value []byte) error {
		if want := "2d" + next.release + "\n{}"; string(value) != want {
			t.Errorf("stored %q, want %q", value, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func testClosed(t *testing.T, m medium) {
	s := leader(t, m, "one")
	closeStore(t, s)
	closeStore(t, s)
	if !isLost(s) {
		t.Error("leads after Close")
	}
	if err := s.Commit(t.Context(), []model.Write{put("a", "1")}); !errors.Is(err, ErrNotLeader) {
		t.Errorf("Commit after Close: %v, want ErrNotLeader", err)
	}
	if err := s.Campaign(t.Context(), "one"); !errors.Is(err, errClosed) {
		t.Errorf("Campaign after Close: %v, want errClosed", err)
	}
	if _, err := s.Load(t.Context()); !errors.Is(err, errClosed) {
		t.Errorf("Load after Close: %v, want errClosed", err)
	}
}

func testIdentityFixed(t *testing.T, m medium) {
	s := leader(t, m, "one")
	for _, w := range []model.Write{put(identityKey, "{}"), del(identityKey)} {
		if err := s.Commit(t.Context(), []model.Write{w}); err == nil || !strings.Contains(err.Error(), "identity") {
			t.Errorf("Commit of the identity: %v", err)
		}
	}
	commit(t, s, put(identityKey+"s/x", "1")) // begins like it, and is another key
	if _, err := m.open(t, "c"); err != nil {
		t.Errorf("open: %v", err)
	}
}
