package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// attribute is one of netlink: its value, or those that are in it.
type attribute struct {
	kind  uint16
	value []byte
}

// nest is an attribute of attributes, after a header of its own if it has one.
func nest(kind uint16, head []byte, of ...attribute) attribute {
	return attribute{kind | unix.NLA_F_NESTED, appendAttributes(head, of)}
}

// text is an attribute of a name.
func text(kind uint16, s string) attribute { return attribute{kind, append([]byte(s), 0)} }

// number is an attribute of the machine's byte order, and bigNumber one of the network's.
func number(kind uint16, n uint32) attribute {
	return attribute{kind, binary.NativeEndian.AppendUint32(nil, n)}
}

func bigNumber(kind uint16, n uint32) attribute {
	return attribute{kind, binary.BigEndian.AppendUint32(nil, n)}
}

// appendAttributes appends them as netlink has them: each begins at a multiple of 4.
func appendAttributes(b []byte, of []attribute) []byte {
	for _, a := range of {
		b = binary.NativeEndian.AppendUint16(b, uint16(unix.SizeofNlAttr+len(a.value)))
		b = append(binary.NativeEndian.AppendUint16(b, a.kind), a.value...)
		for len(b)%unix.NLA_ALIGNTO != 0 {
			b = append(b, 0)
		}
	}
	return b
}

// attributesOf returns the values of attributes by their kind.
func attributesOf(b []byte) map[uint16][]byte {
	found := map[uint16][]byte{}
	for len(b) >= unix.SizeofNlAttr {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofNlAttr || size > len(b) {
			break
		}
		found[binary.NativeEndian.Uint16(b[2:])&^unix.NLA_F_NESTED] = b[unix.SizeofNlAttr:size]
		b = b[min((size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1), len(b)):]
	}
	return found
}

// request is a message to the kernel: what for, in words, and the header of its kind before attributes.
type request struct {
	name       string
	kind       uint16
	flags      uint16
	head       []byte
	attributes []attribute
	optional   bool // the kernel may refuse it
}

// socket is one of netlink, of the network namespace in which it was opened.
type socket struct{ fd int }

// open opens a socket in the calling thread's network namespace.
func open(family int) (socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, family)
	if err != nil {
		return socket{-1}, os.NewSyscallError("netlink", err)
	}
	if err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return socket{-1}, errors.Join(os.NewSyscallError("netlink", err), unix.Close(fd))
	}
	return socket{fd}, nil
}

func (s socket) close() error {
	if s.fd < 0 {
		return nil
	}
	return unix.Close(s.fd)
}

// do sends requests together, and returns when all are answered: the first that was refused, and may not be.
func (s socket) do(all ...request) error {
	var b []byte
	for i := range all {
		all[i].flags |= unix.NLM_F_ACK
		b = all[i].append(b, uint32(i))
	}
	return s.exchange(b, all)
}

// append appends a request with a number.
func (r *request) append(b []byte, number uint32) []byte {
	begin := len(b)
	b = append(b, make([]byte, unix.SizeofNlMsghdr)...)
	b = appendAttributes(append(b, r.head...), r.attributes)
	head := b[begin:]
	binary.NativeEndian.PutUint32(head, uint32(len(head)))
	binary.NativeEndian.PutUint16(head[4:], r.kind)
	binary.NativeEndian.PutUint16(head[6:], r.flags|unix.NLM_F_REQUEST)
	binary.NativeEndian.PutUint32(head[8:], number)
	return b
}

// exchange sends messages, of which those with NLM_F_ACK are answered.
func (s socket) exchange(b []byte, all []request) error {
	if err := unix.Sendto(s.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("netlink", err)
	}
	left := 0
	for _, r := range all {
		if r.flags&unix.NLM_F_ACK != 0 {
			left++
		}
	}
	var failed error
	for left > 0 {
		err := s.receive(func(kind uint16, number uint32, body []byte) {
			if kind != unix.NLMSG_ERROR || len(body) < 4 || int(number) >= len(all) {
				return
			}
			left--
			errno := unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
			if r := all[number]; errno != 0 && !r.optional && failed == nil {
				failed = fmt.Errorf("%s: %w", r.name, errno)
			}
			if all[number].flags&unix.NLM_F_ACK == 0 { // it stands for all
				left = 0
			}
		})
		if err != nil {
			return err
		}
	}
	return failed
}

// dump asks for all that there is of a kind and calls each with it.
func (s socket) dump(r request, each func(body []byte)) error {
	r.flags |= unix.NLM_F_DUMP
	if err := unix.Sendto(s.fd, r.append(nil, 0), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("netlink", err)
	}
	var failed error
	for done := false; !done; {
		err := s.receive(func(kind uint16, _ uint32, body []byte) {
			switch kind {
			case unix.NLMSG_DONE:
				done = true
			case unix.NLMSG_ERROR:
				if done = true; len(body) >= 4 {
					failed = fmt.Errorf("%s: %w", r.name, unix.Errno(-int32(binary.NativeEndian.Uint32(body))))
				}
			default:
				each(body)
			}
		})
		if err != nil {
			return err
		}
	}
	return failed
}

// receive takes a packet of messages.
func (s socket) receive(each func(kind uint16, number uint32, body []byte)) error {
	b := make([]byte, 32<<10) // the most that the kernel sends at once
	n, _, err := unix.Recvfrom(s.fd, b, 0)
	for errors.Is(err, unix.EINTR) {
		n, _, err = unix.Recvfrom(s.fd, b, 0)
	}
	if err != nil {
		return os.NewSyscallError("netlink", err)
	}
	for b = b[:n]; len(b) >= unix.SizeofNlMsghdr; {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.SizeofNlMsghdr || size > len(b) {
			return errors.New("netlink: a message that is cut off")
		}
		each(binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint32(b[8:]), b[unix.SizeofNlMsghdr:size])
		b = b[min((size+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1), len(b)):]
	}
	return nil
}
