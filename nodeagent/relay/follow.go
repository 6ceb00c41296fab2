package relay

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// watchLinks opens a socket that has something to read when a link of the calling thread's network
// namespace changes.
func watchLinks() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, os.NewSyscallError("netlink", err)
	}
	if err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK}); err != nil {
		return nil, errors.Join(os.NewSyscallError("netlink", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "links"), nil
}

// follow has the relay be as the interface that it stands for is, until it is closed, or it cannot see
// changes any more. report is called with what could not be followed.
func (r *Relay) follow(report func(error)) {
	defer close(r.done)
	var b [1]byte // that something has changed is all that is wanted of a message
	for {
		switch _, err := r.watch.Read(b[:]); {
		case errors.Is(err, os.ErrClosed):
			return
		case err != nil && !errors.Is(err, unix.ENOBUFS):
			report(fmt.Errorf("relay of a task's network: changes of the interface are not seen any more: %w", err))
			return
		}
		if err := r.renew(); err != nil {
			report(fmt.Errorf("relay of a task's network: %w", err))
		}
	}
}

// renew looks at the interface, which an agent makes anew when it was lost, and which may have another
// MTU then.
//
// The kernel behind the pair has asked for the MTU when it was started, and goes on to send packets of
// that size: so the pair's only grows, with what others may send, and of new connections both ends are
// made to agree on less, as a router does.
func (r *Relay) renew() error {
	is, err := r.first.link(outer)
	if errors.Is(err, errNoInterface) {
		r.is = link{}
		return nil
	}
	if err != nil || is.index == r.is.index && is.mtu == r.is.mtu {
		return err
	}
	if is.mtu > r.pair.mtu {
		grown := func(s socket, index int32) error {
			return s.do(request{name: "set the MTU", kind: unix.RTM_SETLINK, head: linkHead(index, 0), attributes: []attribute{number(unix.IFLA_MTU, is.mtu)}})
		}
		if err := errors.Join(grown(r.first, r.pair.index), grown(r.second, r.inner)); err != nil {
			return err
		}
		r.pair.mtu = is.mtu
	}
	most := uint32(0)
	if is.mtu < r.started {
		most = is.mtu
	}
	if err := redirect(r.rules, is.index, r.pair.index, most); err != nil {
		return err
	}
	r.is = is
	return nil
}
