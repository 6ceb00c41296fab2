package loop_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/musterhq/muster/schema"
)

// lateNetworks has addresses when it is closed, not before.
type lateNetworks chan struct{}

func (n lateNetworks) Ready(ctx context.Context, _ *schema.Assignment) error {
	select {
	case <-n:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n lateNetworks) Join(*schema.Assignment) (*schema.TaskNetwork, error) {
	select {
	case <-n:
		return &schema.TaskNetwork{Addresses: []netip.Addr{netip.MustParseAddr("10.64.1.2")}}, nil
	default:
		return nil, errors.New("joined before the machine has addresses")
	}
}

func (n lateNetworks) Keep(of []*schema.Assignment) ([]*schema.TaskNetwork, error) {
	return make([]*schema.TaskNetwork, len(of)), nil
}

func (n lateNetworks) Leave(*schema.Assignment) error { return nil }

// Tasks that wait for addresses are not in the way of others.
func TestStartsBesideThoseThatWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := make(lateNetworks)
		s := &story{t: t, kernel: newKernel(t), dir: t.TempDir(), crash: &crash{}, dead: map[uint64]bool{}}
		s.kernel.networks = n
		s.agent = startAgent(t, s.kernel, s.dir, s.crash)
		defer func() { s.agent.stop() }()
		var all []schema.Assignment
		var want []string
		const more = 20 // than starts at once
		for i := range more {
			a := assignment("web", i, uint64(i+1), schema.Service)
			a.OwnNetwork = true
			all = append(all, a)
			want = append(want, fmt.Sprintf("u/web/%d g%d running", i, i+1))
		}
		s.assign(append(all[:more:more], assignment("zone", 0, 100, schema.Service))...)
		rest()
		if alive := s.kernel.alive(); len(alive) != 1 {
			t.Errorf("%q run, want the one task that waits for nothing", alive)
		}
		close(n)
		s.until(append(want, "u/zone/0 g100 running")...)
	})
}
