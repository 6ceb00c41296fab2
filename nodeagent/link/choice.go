package link

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc/connectivity"
)

// probeTimeout is for a master that a machine would rather be with to be there.
const probeTimeout = 10 * time.Second

// rank returns the masters of a cell in the order in which a machine tries them: by a
// hash of both names (rendezvous hashing). So each master has its share of the machines;
// those of one that goes spread over all others, and no other machine moves.
func rank(machine string, masters []string) []string {
	weight := func(master string) uint64 {
		sum := sha256.Sum256([]byte(machine + "\x00" + master))
		return binary.BigEndian.Uint64(sum[:])
	}
	return slices.SortedStableFunc(slices.Values(masters), func(a, b string) int {
		return cmp.Compare(weight(b), weight(a))
	})
}

// awaitFirst waits until the machine's first choice among the masters can be reached,
// looking every so often, and then has the session end for one with that. It returns
// when ctx ends.
func (s *session) awaitFirst(ctx context.Context, moved chan<- struct{}) {
	for {
		if !sleep(ctx, s.client.cfg.Backoff.Return/2+rand.N(s.client.cfg.Backoff.Return/2+1)) {
			return
		}
		if s.client.reaches(ctx, s.client.masters[0]) {
			close(moved)
			return
		}
	}
}

// reaches reports whether a connection to a master can be made.
func (c *Client) reaches(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	cfg, err := c.configOf(address)
	if err != nil {
		return false
	}
	conn, err := connectTo(address, cfg)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }() // it errs only when closed before
	conn.Connect()
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		if state == connectivity.TransientFailure || !conn.WaitForStateChange(ctx, state) {
			return false
		}
	}
	return true
}
