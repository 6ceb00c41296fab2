package runtime_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hoard sends datagrams to many sockets of its own, which it does not read, and then
// counts what the kernel has kept for it. It errs unless that is more than a[0]
// bytes.
func hoard(a []string) error {
	const sockets, each, size = 300, 20, 60000
	out, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	var all []int
	message := make([]byte, size)
	for range sockets {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		all = append(all, fd)
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<20); err != nil {
			return err
		}
		if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
			return err
		}
		to, err := unix.Getsockname(fd)
		if err != nil {
			return err
		}
		for range each {
			if err := unix.Sendto(out, message, 0, to); err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.ENOBUFS) {
				return err
			}
		}
	}
	kept := 0
	for _, fd := range all {
		for {
			n, err := unix.Read(fd, message)
			if err != nil {
				break
			}
			kept += n
		}
	}
	if kept == 0 {
		return errors.New("nothing was kept at all")
	}
	if kept <= number(a[0]) {
		return fmt.Errorf("%d bytes were kept", kept)
	}
	return nil
}

// TestSocketBuffers: what a task leaves in the buffers of its sockets stays within
// its limit of memory, or the part beside it that there is for them.
func TestSocketBuffers(t *testing.T) {
	t.Parallel()
	needRoot(t)
	v := newVictims(t)
	v.m.needGroups(t, "memory")
	const limit = 64 << 20
	p, dir := v.m.start(assignment(1, v.exe, attemptArg, "hoard", fmt.Sprint(limit)))
	e := wait(t, p) // v2 may kill for it
	if what := said(t, dir); !e.OOM && !strings.HasSuffix(what, " bytes were kept\n") {
		t.Errorf("with a limit of %d bytes: %v, %q", limit, e, what)
	}
}

// pile fills netlink sockets with answers of the kernel, which it does not read, and says
// when it is done.
func pile([]string) error {
	const sockets = 300
	// struct nlmsghdr of an unknown type, which asks for an acknowledgement.
	request := make([]byte, unix.SizeofNlMsghdr)
	binary.NativeEndian.PutUint32(request, uint32(len(request)))
	binary.NativeEndian.PutUint16(request[4:], 0x7fff)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	for range sockets {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		for range 1000 {
			if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
				break // it is full
			}
		}
	}
	fmt.Println("piled")
	time.Sleep(time.Hour)
	return nil
}

// cork begins datagrams that it does not send, and says when it is done.
func cork([]string) error {
	const sockets, size = 300, 50_000
	to := &unix.SockaddrInet4{Port: 9, Addr: [4]byte{127, 0, 0, 1}}
	for range sockets {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		if err := unix.Sendto(fd, make([]byte, size), unix.MSG_MORE, to); err != nil {
			return err
		}
	}
	fmt.Println("piled")
	time.Sleep(time.Hour)
	return nil
}

// TestUnchargedBuffers: what a task leaves in sockets, and no cgroup counts, is in the memory
// that it is seen to use.
func TestUnchargedBuffers(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for how, least := range map[string]int64{"pile": 300 * 100 << 10, "cork": 300 * 50_000} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			v := newVictims(t)
			p, dir := v.m.start(assignment(1, v.exe, attemptArg, how))
			says(t, dir, "piled")
			u, ok := p.Usage()
			if !ok || u.RAMBytes < least {
				t.Errorf("%d bytes of memory are seen, want those of 300 full sockets", u.RAMBytes)
			}
			if left := end(t, p); left.Signal != "SIGTERM" && left.Signal != "SIGKILL" {
				t.Errorf("ended by %v", left)
			}
		})
	}
}
