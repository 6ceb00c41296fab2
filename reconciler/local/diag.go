package local

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Sizes and offsets of what sock_diag(7) says, in bytes.
const (
	headerSize  = 16 // struct nlmsghdr
	requestSize = 56 // struct inet_diag_req_v2
	answerSize  = 72 // struct inet_diag_msg
	idSize      = 48 // struct inet_diag_sockid: ports, addresses, interface, cookie
	idOfRequest = 8
	idOfAnswer  = 4

	stateOfAnswer = 1
	uidOfAnswer   = 64
)

// anyCookie leaves the socket's cookie open.
const anyCookie = 0xffffffff

// listening is the state of a socket that listens, in the numbers of tcp_states.h.
const listening = 10

// connected are the states of a connection that has two ends. A peer that has said
// all it has to say is in one of the later ones.
var connected = map[byte]bool{
	1: true, // ESTABLISHED
	4: true, // FIN_WAIT1
	5: true, // FIN_WAIT2
	8: true, // CLOSE_WAIT
}

// socket is one end of a TCP connection on this machine.
type socket struct {
	uid   uint32
	inode uint32 // 0: no process has it any more
}

// diag asks the kernel about single sockets, which takes as long however many
// there are.
type diag struct{ fd int }

func openDiag() (diag, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return diag{}, fmt.Errorf("sock_diag: %w", err)
	}
	// The kernel answers before it returns from the question.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return diag{}, errors.Join(fmt.Errorf("sock_diag: %w", err), unix.Close(fd))
	}
	return diag{fd}, nil
}

func (d diag) close() { _ = unix.Close(d.fd) }

// find returns the socket that is bound to local and connected to remote.
func (d diag) find(local, remote netip.AddrPort) (socket, error) {
	m, err := d.ask(local, remote)
	if err != nil {
		return socket{}, err
	}
	// Without such a connection the kernel names who listens there.
	want := ends(local, remote)
	if !connected[m[stateOfAnswer]] || !bytes.Equal(m[idOfAnswer:idOfAnswer+4], want[:4]) {
		return socket{}, errors.New("sock_diag: there is no such connection")
	}
	return socketIn(m), nil
}

// listener returns the socket that takes connections to an address.
func (d diag) listener(at netip.AddrPort) (socket, error) {
	nowhere := netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	if at.Addr().Unmap().Is6() {
		nowhere = netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	}
	m, err := d.ask(at, nowhere)
	if err != nil {
		return socket{}, err
	}
	if m[stateOfAnswer] != listening {
		return socket{}, errors.New("sock_diag: nobody listens there")
	}
	return socketIn(m), nil
}

func socketIn(m []byte) socket {
	return socket{uid: binary.NativeEndian.Uint32(m[uidOfAnswer:]), inode: binary.NativeEndian.Uint32(m[uidOfAnswer+4:])}
}

// ask returns what the kernel says of a socket, a whole struct inet_diag_msg.
func (d diag) ask(local, remote netip.AddrPort) ([]byte, error) {
	if err := unix.Sendto(d.fd, question(local, remote), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("sock_diag: %w", err)
	}
	b := make([]byte, 4<<10)
	n, _, err := unix.Recvfrom(d.fd, b, 0)
	if err != nil {
		return nil, fmt.Errorf("sock_diag: %w", err)
	}
	return answer(b[:n])
}

func question(local, remote netip.AddrPort) []byte {
	b := make([]byte, headerSize+requestSize)
	native := binary.NativeEndian
	native.PutUint32(b[0:], uint32(len(b)))
	native.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	native.PutUint16(b[6:], unix.NLM_F_REQUEST)
	r := b[headerSize:]
	r[0] = unix.AF_INET6
	if local.Addr().Unmap().Is4() {
		r[0] = unix.AF_INET
	}
	r[1] = unix.IPPROTO_TCP
	native.PutUint32(r[4:], ^uint32(0)) // sockets in any state
	id := r[idOfRequest:]
	copy(id, ends(local, remote))
	native.PutUint32(id[idSize-8:], anyCookie)
	native.PutUint32(id[idSize-4:], anyCookie)
	return b
}

// ends writes the two ends of a connection as inet_diag_sockid begins.
func ends(local, remote netip.AddrPort) []byte {
	b := make([]byte, 36)
	binary.BigEndian.PutUint16(b[0:], local.Port())
	binary.BigEndian.PutUint16(b[2:], remote.Port())
	copy(b[4:20], local.Addr().Unmap().AsSlice())
	copy(b[20:36], remote.Addr().Unmap().AsSlice())
	return b
}

func answer(b []byte) ([]byte, error) {
	if len(b) < headerSize+4 {
		return nil, errors.New("sock_diag: a short answer")
	}
	native := binary.NativeEndian
	if native.Uint16(b[4:]) == unix.NLMSG_ERROR {
		return nil, fmt.Errorf("sock_diag: %w", unix.Errno(-int32(native.Uint32(b[headerSize:])))) //nolint:gosec // a negative errno
	}
	if native.Uint16(b[4:]) != unix.SOCK_DIAG_BY_FAMILY || len(b) < headerSize+answerSize {
		return nil, errors.New("sock_diag: an answer to something else")
	}
	return b[headerSize:], nil
}
