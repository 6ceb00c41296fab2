package store

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

// etcdBackend is the server within this process and the only client it has.
type etcdBackend struct {
	server *embed.Etcd
	client *clientv3.Client
	dir    *dataDir
}

func (b *etcdBackend) txn(ctx context.Context, c condition, ops []op) (int64, bool, error) {
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
	resp, err := txn.Then(then...).Commit()
	if err != nil {
		return 0, false, fmt.Errorf("etcd: %w", err)
	}
	return resp.Header.Revision, resp.Succeeded, nil
}

// scan reads in pages, all at the revision of the first.
func (b *etcdBackend) scan(ctx context.Context, prefix string, yield func(string, []byte) error) error {
	from, end, rev := prefix, clientv3.GetPrefixRangeEnd(prefix), int64(0)
	for {
		resp, err := b.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(pageSize), clientv3.WithRev(rev))
		if err != nil {
			return fmt.Errorf("etcd: read from %q: %w", from, err)
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

func (b *etcdBackend) down() <-chan struct{} { return b.server.Server.StopNotify() }

func (b *etcdBackend) close() error {
	err := b.client.Close()
	if errors.Is(err, context.Canceled) {
		err = nil // what the client says when it was closed as asked
	}
	b.server.Close()
	return errors.Join(err, b.dir.close())
}
