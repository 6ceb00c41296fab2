package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"

	"github.com/musterhq/muster/reconciler/failpoint"
)

// etcdClient is what both etcd backends have in common.
type etcdClient struct {
	client *clientv3.Client
	// timeout bounds one request, 0: nothing does. A cluster that cannot be
	// reached does not say so.
	timeout time.Duration
	// end is that of a server within this process; nil of one outside.
	end *collapse
}

// etcdBackend is the server within this process and the only client it has.
type etcdBackend struct {
	etcdClient
	server *embed.Etcd
	dir    *dataDir
	quota  int64
	failed <-chan struct{} // closed when the server has given up
	looked look            // when it was last looked whether to compact; zero if never
	kept   int64           // bytes of the file that were needed when it was last compacted; 0 if it never was
	scans  atomic.Int64    // how many are under way
}

// scan keeps old revisions from being forgotten while it reads at one.
func (b *etcdBackend) scan(ctx context.Context, prefix string, yield func(string, []byte) error) error {
	b.scans.Add(1)
	defer b.scans.Add(-1)
	return b.etcdClient.scan(ctx, prefix, yield)
}

// request returns the context of one request.
func (b etcdClient) request(ctx context.Context) (context.Context, context.CancelFunc) {
	if b.timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, b.timeout)
}

func (b etcdClient) txn(ctx context.Context, c condition, ops []op) (int64, bool, error) {
	ctx, cancel := b.request(ctx)
	defer cancel()
	txn := b.client.Txn(ctx)
	if c.key != "" {
		txn = txn.If(clientv3.Compare(clientv3.ModRevision(c.key), "=", c.rev))
	}
	then := make([]clientv3.Op, len(ops))
	for i, o := range ops {
		if o.value == nil {
			then[i] = clientv3.OpDelete(o.key)
		} else {
			then[i] = clientv3.OpPut(o.key, string(o.value))
		}
	}
	txn.Then(then...)
	writesItself := slices.ContainsFunc(ops, func(o op) bool { return o.key == c.key })
	for began := time.Now(); ; {
		resp, err := call(b.end, txn.Commit)
		switch {
		case err == nil:
			return resp.Header.Revision, resp.Succeeded, nil
		case !b.slow(err) || writesItself || time.Since(began) >= requestTimeout:
			return 0, false, b.down(err)
		}
	}
}

// slow reports whether a server within this process, which has one disk and no other
// member, took longer than etcd waits, 5.2 s. It takes proposals in their order, so
// the same one after the first changes nothing, but of what it compares. One that a
// cluster has forwarded may come after others: whoever sent it is to lead no more
// before it goes on.
func (b etcdClient) slow(err error) bool {
	return b.end != nil && strings.Contains(err.Error(), etcderrors.ErrTimeout.Error())
}

// scan reads in pages, all at the revision of the first.
func (b etcdClient) scan(ctx context.Context, prefix string, yield func(string, []byte) error) error {
	from, end, rev := prefix, clientv3.GetPrefixRangeEnd(prefix), int64(0)
	for {
		resp, err := b.page(ctx, from, end, rev)
		if err != nil {
			return fmt.Errorf("read from %q: %w", from, b.down(err))
		}
		for _, kv := range resp.Kvs {
			if err := yield(string(kv.Key), kv.Value); err != nil {
				return err
			}
		}
		if !resp.More {
			return nil
		}
		if rev == 0 {
			rev = resp.Header.Revision
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}

func (b etcdClient) page(ctx context.Context, from, end string, rev int64) (*clientv3.GetResponse, error) {
	ctx, cancel := b.request(ctx)
	defer cancel()
	return call(b.end, func() (*clientv3.GetResponse, error) {
		return b.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(pageSize), clientv3.WithRev(rev))
	})
}

func (b etcdClient) closeClient() error {
	err := b.client.Close()
	if errors.Is(err, context.Canceled) {
		err = nil // what the client says when it was closed as asked
	}
	return err
}

// ErrDown says that the store does not answer, or takes no writes. What it was
// asked for may be asked again once it does.
var ErrDown = errors.New("the store is down")

// downError is an error of etcd, which is ErrDown.
type downError struct{ error }

// down returns ErrDown, or what has ended the server for good.
func (b etcdClient) down(err error) error {
	if gone := b.end.happened(); gone != nil {
		return gone
	}
	return downError{fmt.Errorf("etcd: %w", err)}
}

func (e downError) Is(target error) bool { return target == ErrDown }

func (e downError) Unwrap() error { return e.error }

// campaign takes the key over at once: whoever holds the data directory is the
// only process that can lead.
func (b *etcdBackend) campaign(ctx context.Context, key string, value []byte) (int64, <-chan struct{}, error) {
	if _, err := call(b.end, func() (struct{}, error) { return struct{}{}, b.heal(ctx) }); err != nil {
		return 0, nil, err
	}
	failpoint.StoreElection.Before()
	rev, _, err := b.txn(ctx, condition{}, []op{{key, value}})
	failpoint.StoreElection.After()
	return rev, b.failed, err
}

// close ends the server. One that has collapsed cannot be ended.
func (b *etcdBackend) close() error {
	err := b.closeClient()
	if b.end.happened() == nil {
		b.server.Close()
	}
	return errors.Join(err, b.dir.close())
}
