package netfilter

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// PerMessage is how many elements of a set are in one message: it has to stay below 64 KiB, the
// longest attribute of netlink, and an element has up to 110 bytes. It is even, since an interval
// is two.
const PerMessage = 400

const (
	// bytesPerElement is what is reserved for an element in the socket's buffer, beside
	// bytesAtLeast for all else. A transaction is sent in one piece.
	bytesPerElement = 200
	bytesAtLeast    = 4 << 20
)

// Small reports whether a transaction with so many elements fits a connection for one with none.
func Small(elements int) bool { return elements*bytesPerElement <= bytesAtLeast }

// Open opens a connection for a transaction with so many elements, in the network namespace of
// the thread. A connection has one user at a time.
func Open(elements int, more ...nftables.ConnOption) (*nftables.Conn, error) {
	size := bytesAtLeast + elements*bytesPerElement
	c, err := nftables.New(append(more, nftables.WithSockOptions(func(c *netlink.Conn) error {
		return errors.Join(c.SetWriteBuffer(size), c.SetReadBuffer(bytesAtLeast))
	}))...)
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	return c, nil
}

// typeMask leaves the type of an attribute without its flags.
const typeMask = 0x3fff

// VerdictChain returns the chain of a verdict, which the library leaves as attributes; "" if
// there is none.
func VerdictChain(b []byte) string {
	for len(b) >= 4 {
		size := int(binary.NativeEndian.Uint16(b))
		if size < 4 || size > len(b) {
			break
		}
		if binary.NativeEndian.Uint16(b[2:])&typeMask == unix.NFTA_VERDICT_CHAIN {
			return unix.ByteSliceToString(b[4:size])
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return ""
}
