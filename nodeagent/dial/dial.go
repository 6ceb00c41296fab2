package dial

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"

	"golang.org/x/sys/unix"
)

// The ports that only root may bind and that rresvport(3) takes: no task has one, and
// the kernel gives none to who lets it choose.
const (
	firstReserved = 600
	lastReserved  = 1023
)

// attempts is how many of those are tried, of which others may have some.
const attempts = 8

// TCP connects as d does, from a port of the kernel's choice. When there is none left, it
// connects from one that tasks cannot take, as far as this process may: the error is
// then the last one.
func TCP(ctx context.Context, d net.Dialer, address string) (net.Conn, error) {
	c, err := d.DialContext(ctx, "tcp", address)
	for range attempts {
		if !errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, unix.EADDRINUSE) {
			break
		}
		d.LocalAddr = &net.TCPAddr{Port: firstReserved + rand.IntN(lastReserved-firstReserved+1)}
		c, err = d.DialContext(ctx, "tcp", address)
	}
	return c, err
}
