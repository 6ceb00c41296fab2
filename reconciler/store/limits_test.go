package store

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/musterhq/muster/reconciler/model"
)

// watcher notes each transaction of a backend.
type watcher struct {
	backend
	mu   sync.Mutex // guards txns
	txns []watched
}

type watched struct {
	on  condition
	ops []op
}

func (w *watcher) txn(ctx context.Context, c condition, ops []op) (int64, bool, error) {
	w.mu.Lock()
	w.txns = append(w.txns, watched{c, slices.Clone(ops)})
	w.mu.Unlock()
	return w.backend.txn(ctx, c, ops)
}

// Every kind of write (documents, deletions, pieces, their sweeping, resigning)
// compares the election key, and no transaction is larger than etcd takes.
func testEveryWrite(t *testing.T, m medium) {
	s := leader(t, m, "one")
	w := &watcher{backend: s.be}
	s.be = w
	var many []model.Write
	for i := range 500 {
		many = append(many, model.Write{Key: fmt.Sprint("k/", i), Value: noise(uint64(i), 9<<10)}, put(fmt.Sprint("k/", i/2), "again"))
	}
	for _, batch := range model.Batches(many) {
		commit(t, s, batch...)
	}
	commit(t, s, model.Write{Key: "big", Value: noise(1, 3<<20+7)}, put("beside", "x"))
	if _, ok := m.(memoryMedium); ok { // on disks it takes long
		commit(t, s, model.Write{Key: "big", Value: noise(2, 140<<20)}) // more pieces than operations
	}
	commit(t, s, del("big"), del("beside"), del("never"))
	if err := s.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(w.txns) < 10 {
		t.Errorf("%d transactions were seen", len(w.txns))
	}
	for i, txn := range w.txns {
		if txn.on != s.fence || txn.on.key != s.leaderKey() || txn.on.rev == 0 {
			t.Errorf("transaction %d of %d operations on %s compares %+v, want the election key at %d", i, len(txn.ops), txn.ops[0].key, txn.on, s.fence.rev)
		}
		bytes, keys := 0, map[string]bool{}
		for _, o := range txn.ops {
			bytes += len(o.value)
			if keys[o.key] {
				t.Errorf("transaction %d has %s twice", i, o.key)
			}
			keys[o.key] = true
		}
		if len(txn.ops) > 128 || bytes > 1<<20+64<<10 {
			t.Errorf("transaction %d has %d operations of %d bytes", i, len(txn.ops), bytes)
		}
	}
}

// pages notes how many keys each read asked for.
type pages struct {
	clientv3.KV
	limits []int64
}

func (p *pages) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	resp, err := p.KV.Get(ctx, key, opts...)
	if err == nil {
		p.limits = append(p.limits, int64(len(resp.Kvs)))
	}
	return resp, err
}

// No read brings more than a page, however much there is.
func TestReadsArePaged(t *testing.T) {
	t.Parallel()
	s, err := openEmbedded(t, t.TempDir(), "c")
	if err != nil {
		t.Fatal(err)
	}
	lead(t, s, "one")
	var writes []model.Write
	for i := range 2*pageSize + 7 {
		writes = append(writes, put(fmt.Sprint(i), "x"))
	}
	for _, batch := range model.Batches(writes) {
		commit(t, s, batch...)
	}
	client := s.be.(*etcdBackend).client
	spy := &pages{KV: client.KV}
	client.KV = spy
	if got := len(load(t, s)); got != len(writes) {
		t.Fatalf("%d documents", got)
	}
	if _, err := s.Documents(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if len(spy.limits) < 6 || slices.Max(spy.limits) > pageSize {
		t.Errorf("reads of %v keys, want at most %d each", spy.limits, pageSize)
	}
}
