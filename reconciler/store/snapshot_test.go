package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/musterhq/muster/reconciler/model"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// snapshot takes one that must be taken.
func snapshot(t *testing.T, s *Store, dir string, keep int, now time.Time) string {
	t.Helper()
	path, err := s.Snapshot(t.Context(), dir, keep, now)
	if err != nil || path == "" {
		t.Fatalf("snapshot: %q, %v", path, err)
	}
	return path
}

func restore(t *testing.T, file, dir string) (SnapshotInfo, error) {
	t.Helper()
	return Restore(t.Context(), RestoreConfig{Snapshot: file, Dir: dir, Release: "v2.0.0", Log: testLog(t), Now: noon.Add(time.Hour)})
}

// What was in a store is in the one that is made of its snapshot, with numbers
// that jump ahead; a store is never overwritten.
func TestSnapshotAndRestore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openEmbedded(t, filepath.Join(dir, "first"), "c")
	if err != nil {
		t.Fatal(err)
	}
	lead(t, s, "one")
	commit(t, s, put("counter", "17"), put("machine/m1", `{"name":"m1","epoch":40,"later":"x"}`), put("member/m1", "{}"), model.Write{Key: "later/big", Value: noise(1, 2<<20)})
	snaps := filepath.Join(dir, "snaps")
	file := snapshot(t, s, snaps, 3, noon)
	if path, err := s.Snapshot(t.Context(), snaps, 3, noon.Add(time.Hour)); path != "" || err != nil {
		t.Errorf("a store that has not changed has another snapshot: %q, %v", path, err)
	}
	want := load(t, s)
	commit(t, s, put("counter", "99"))
	to := filepath.Join(dir, "second")
	info, err := restore(t, file, to)
	if err != nil {
		t.Fatal(err)
	}
	if info.Cell != "c" || !info.At.Equal(noon) || info.Documents != 5 {
		t.Errorf("restored %+v", info)
	}
	r, err := openEmbedded(t, to, "c")
	if err != nil {
		t.Fatal(err)
	}
	lead(t, r, "two")
	got := load(t, r)
	if string(got["counter"]) != "7099480000000" || !bytes.Contains(got["restored"], []byte(`"counter":17,"floor":7099480000000`)) {
		t.Errorf("counter %s, restored %s", got["counter"], got["restored"])
	}
	delete(got, "restored")
	got["counter"] = want["counter"]
	if d := cmp.Diff(want, got, cmp.Comparer(bytes.Equal)); d != "" {
		t.Errorf("documents (-before +after)\n%s", d)
	}
	closeStore(t, r)
	// One that is there is left as it is, and so is one that is in use.
	for _, there := range []string{to, filepath.Join(dir, "first")} {
		if _, err := restore(t, file, there); err == nil || !strings.Contains(err.Error(), `it holds the state of cell "c", and nothing is overwritten`+"\nhint: ") {
			t.Errorf("restore over %s: %v", there, err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "other"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "other", "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := restore(t, file, filepath.Join(dir, "other")); err == nil || !strings.Contains(err.Error(), "it is not empty") {
		t.Errorf("restore to a directory with something in it: %v", err)
	}
	if _, err := Restore(t.Context(), RestoreConfig{Snapshot: file, Dir: filepath.Join(dir, "third"), Cell: "d", Log: testLog(t)}); err == nil || !strings.Contains(err.Error(), `is of cell "c", not "d"`) {
		t.Errorf("restore of another cell: %v", err)
	}
	for i := range 5 {
		commit(t, s, put("a", fmt.Sprint(i)))
		file = snapshot(t, s, snaps, 3, noon.Add(time.Duration(i+2)*time.Minute))
	}
	entries, err := os.ReadDir(snaps)
	if err != nil || len(entries) != 3 || entries[2].Name() != filepath.Base(file) || !newestSnapshot(snaps, "c", noon.Add(time.Hour)).Equal(noon.Add(6*time.Minute)) {
		t.Errorf("%d snapshots stay: %v, %v", len(entries), entries, err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*restoring*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A snapshot of which a byte is another, or that is cut, is refused as a whole,
// and leaves no directory.
func TestDamagedSnapshot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := leader(t, memoryMedium{NewMemory()}, "one")
	commit(t, s, put("counter", "17"), put("later/a", "x"))
	whole, err := os.ReadFile(snapshot(t, s, dir, 3, noon))
	if err != nil {
		t.Fatal(err)
	}
	want, err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	file, to := filepath.Join(dir, "damaged"), filepath.Join(dir, "to")
	try := func(what string, content []byte) {
		t.Helper()
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		_, docs, err := ReadSnapshot(file)
		if d := cmp.Diff(want, docs, cmp.Comparer(bytes.Equal)); err == nil && d == "" {
			return // of no meaning, such as the bits that fill the last byte up
		}
		if err == nil || !strings.Contains(err.Error(), "\nhint: ") || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range whole {
		flipped := slices.Clone(whole)
		flipped[i] ^= 0x10
		try(fmt.Sprintf("byte %d of %d is another", i, len(whole)), flipped)
		try(fmt.Sprintf("%d of %d bytes", i, len(whole)), whole[:i])
	}
	try("more", append(slices.Clone(whole), whole...))
	if _, err := restore(t, file, to); err == nil {
		t.Error("restored")
	}
	if _, err := os.Stat(to); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory is there: %v", err)
	}
	var b bytes.Buffer
	if err := encodeSnapshot(&b, SnapshotInfo{Format: 2, Cell: "c", Release: "v9.1.0"}, nil); err != nil {
		t.Fatal(err)
	}
	try("a newer one", b.Bytes())
	if _, _, err := ReadSnapshot(file); !strings.Contains(err.Error(), "written by muster v9.1.0 in format 2") {
		t.Errorf("a newer one: %v", err)
	}
}

// A store whose quota is used up by what it keeps of the past takes no writes,
// says so, and repairs itself with the next Campaign; nothing is lost.
func TestQuotaUsedUp(t *testing.T) {
	t.Parallel()
	s, err := OpenEmbedded(t.Context(), EmbeddedConfig{Dir: t.TempDir(), Cell: "c", Log: quiet(), quota: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, s)
	lead(t, s, "one")
	commit(t, s, put("a", "1"))
	next := uint64(0) // how far etcd gets before it notices depends on how busy the machine is
	for ; next < 500 && err == nil; next++ {
		err = s.Commit(t.Context(), []model.Write{{Key: "big", Value: noise(next, 900<<10)}})
	}
	if !errors.Is(err, ErrDown) || !strings.Contains(err.Error(), "database space exceeded") || !isLost(s) {
		t.Fatalf("Commit to a full store: %v", err)
	}
	lead(t, s, "one")
	// What etcd noticed while it applied it is stored.
	last := next - 2
	if docs := load(t, s); bytes.Equal(docs["big"], noise(next-1, 900<<10)) {
		last = next - 1
	}
	wantLarge(t, s, map[string][]byte{"a": []byte("1"), "big": noise(last, 900<<10)})
	commit(t, s, put("a", "2"))
	// One that is full of documents stays down, and says what takes the room; until
	// then leading again makes room, of what is past.
	err = nil
	for i := 0; i < 100 && err == nil; i++ {
		if s.Commit(t.Context(), []model.Write{{Key: fmt.Sprint("big/", i), Value: noise(uint64(i), 900<<10)}}) != nil {
			err = s.Campaign(t.Context(), "one")
		}
	}
	if !errors.Is(err, ErrDown) || !strings.Contains(err.Error(), "the documents take") {
		t.Fatalf("Campaign in a store full of documents: %v", err)
	}
	if docs := load(t, s); string(docs["a"]) != "2" {
		t.Errorf("a is %s", docs["a"])
	}
}

// leadEmbedded returns a store within this process, which leads, and what is beneath it.
func leadEmbedded(t *testing.T) (*Store, *etcdBackend) {
	t.Helper()
	s, err := openEmbedded(t, t.TempDir(), "c")
	if err != nil {
		t.Fatal(err)
	}
	lead(t, s, "one")
	return s, s.be.(*etcdBackend)
}

// hasty is a backend for which there is a look's time between two.
type hasty struct {
	*etcdBackend
	at time.Time
}

func (h *hasty) defragment(ctx context.Context, _ time.Time) (string, error) {
	h.at = h.at.Add(lookEvery)
	return h.etcdBackend.defragment(ctx, h.at)
}

// Old revisions are forgotten when they are much, and free space of the file is given back when there is much of it.
func TestDefragment(t *testing.T) {
	t.Parallel()
	s, be := leadEmbedded(t)
	for i := range 100 {
		commit(t, s, model.Write{Key: "big", Value: noise(uint64(i), 1000<<10)})
	}
	s.be = &hasty{be, noon}
	notes := make(chan string, 10)
	go s.Maintain(t.Context(), Upkeep{Every: time.Second, Keep: 1, Dir: t.TempDir(), Note: func(what, message string, err error) {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		notes <- what + " " + message
	}})
	// What was free while a snapshot was read is free for others with the next commit.
	commits := time.NewTicker(100 * time.Millisecond)
	defer commits.Stop()
	late := time.After(time.Minute)
	commit(t, s, put("a", "1"))
	seen := map[string]bool{}
	for !seen[NoteSnapshot] || !seen[NoteDefrag] {
		select {
		case note := <-notes:
			seen[strings.Fields(note)[0]] = true
		case <-commits.C:
			commit(t, s, put("a", "1"))
		case <-late:
			bytes, used := be.size()
			t.Fatalf("events %v; %d of %d MiB are in use", seen, used>>20, bytes>>20)
		}
	}
	if bytes, _ := be.size(); bytes > 20<<20 {
		t.Errorf("the file has %d MiB", bytes>>20)
	}
	wantLarge(t, s, map[string][]byte{"a": []byte("1"), "big": noise(99, 1000<<10)})
}

// What a scan still reads is not forgotten: not while it is one of this process, however long it takes, and not
// within the time of a look if it is another member's.
func TestCompactDuringScan(t *testing.T) {
	t.Parallel()
	s, be := leadEmbedded(t)
	for i := range pageSize/maxOps + 1 { // more than a page
		var writes []model.Write
		for n := range maxOps {
			writes = append(writes, put(fmt.Sprintf("small/%d/%d", i, n), "1"))
		}
		commit(t, s, writes...)
	}
	for i := range 70 {
		commit(t, s, model.Write{Key: "big", Value: noise(uint64(i), 1000<<10)})
	}
	look := func(at time.Duration) {
		t.Helper()
		commit(t, s, put("a", at.String()))
		if _, err := be.defragment(t.Context(), noon.Add(at)); err != nil {
			t.Fatal(err)
		}
	}
	forgot := func() bool {
		_, err := be.client.Get(t.Context(), root, clientv3.WithRev(2))
		return err != nil
	}
	during := func(scan func(context.Context, string, func(string, []byte) error) error, at ...time.Duration) {
		t.Helper()
		n := 0
		err := scan(t.Context(), s.docPrefix()+"small/", func(string, []byte) error {
			if n++; n == 1 {
				for _, at := range at {
					look(at)
				}
			}
			return nil
		})
		if err != nil || n <= pageSize {
			t.Errorf("a scan of %d documents: %v", n, err)
		}
	}
	during(be.etcdClient.scan, 0, time.Second, lookEvery/2) // another member's, which this one does not know of
	during(be.scan, lookEvery, 2*lookEvery, 3*lookEvery)
	if forgot() {
		t.Error("what a scan reads was forgotten")
	}
	if look(4 * lookEvery); !forgot() {
		t.Error("old revisions are kept after the scan")
	}
}
