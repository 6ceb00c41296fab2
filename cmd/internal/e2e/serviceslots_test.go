package e2e_test

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/reconciler/status"
)

// from asks for the address of a name on a machine, and sends a request to a port there, until ok says that what comes of it is right.
func (g *grid) from(machine, what, name string, port uint16, ok func(who string, err error) bool) {
	g.t.Helper()
	g.must(within(bound, func() error {
		var who string
		var err error
		if failed := g.inside(machine, func() {
			var at netip.Addr
			if at, err = g.lookup(g.t.Context(), name, machine); err == nil {
				who, err = request(g.t.Context(), netip.AddrPortFrom(at, port))
			}
		}); failed != nil {
			return failed
		}
		if !ok(who, err) {
			return fmt.Errorf("%s on %s: answered by %q, %w", what, machine, who, err)
		}
		return nil
	}))
}

// each does from on all machines.
func (g *grid) each(what, name string, port uint16, ok func(who string, err error) bool) {
	g.t.Helper()
	for machine := range g.hosts {
		g.from(machine, what, name, port, ok)
	}
}

// changes begins to listen to what the kernel of a machine says of its nftables. What it returns waits for so many
// changes: the kernel says so to all in the moment in which it answers who has made one.
func (g *grid) changes(machine string) (wait func(n int) error) {
	g.t.Helper()
	fd := -1
	var err error
	g.must(g.inside(machine, func() {
		if fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER); err == nil {
			const nftablesGroup = 7 // NFNLGRP_NFTABLES
			err = errors.Join(unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (nftablesGroup - 1)}),
				unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(bound / time.Second)}))
		}
	}))
	g.must(err)
	return func(n int) error {
		defer func() { _ = unix.Close(fd) }() // nothing was sent
		b := make([]byte, 1<<16)
		const newGeneration = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN // the last message of each change
		for n > 0 {
			size, _, err := unix.Recvfrom(fd, b, 0)
			switch {
			case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENOBUFS): // some were lost
				continue
			case err != nil:
				return fmt.Errorf("no change of nftables on %s: %w", machine, err)
			}
			messages, err := syscall.ParseNetlinkMessage(b[:size])
			if err != nil {
				return fmt.Errorf("what nftables on %s say: %w", machine, err)
			}
			for _, m := range messages {
				if m.Header.Type == newGeneration {
					n--
				}
			}
		}
		return nil
	}
}

var (
	frontRule = regexp.MustCompile(`(\S+ \. (?:tcp|udp) \. \d+) : goto [a-z0-9-]*-(\d+)`)
	slotRule  = regexp.MustCompile(`(\S+ \. (?:tcp|udp) \. \d+) \. 0x([0-9a-f]+) : (\S+) \. (\d+)`)
)

// frontsOf returns where the slots of each front in rules lead, such as "10.80.0.1 . tcp . 80", and errs if one has
// another number of slots than it picks from.
func frontsOf(rules string) (map[string][]string, error) {
	picks, slots, out := map[string]int{}, map[string]map[int]string{}, map[string][]string{}
	var errs []error
	for _, m := range frontRule.FindAllStringSubmatch(rules, -1) {
		picks[m[1]], _ = strconv.Atoi(m[2]) // it is digits
	}
	for _, m := range slotRule.FindAllStringSubmatch(rules, -1) {
		if slots[m[1]] == nil {
			slots[m[1]] = map[int]string{}
		}
		number, _ := strconv.ParseUint(m[2], 16, 32)
		index := int(number)
		slots[m[1]][index] = m[3] + ":" + m[4]
		if index >= picks[m[1]] {
			errs = append(errs, fmt.Errorf("slot %d of %s, which has %d", index, m[1], picks[m[1]]))
		}
	}
	for front, n := range picks {
		if len(slots[front]) != n {
			errs = append(errs, fmt.Errorf("%s picks one of %d slots, and has %d", front, n, len(slots[front])))
		}
		for _, to := range slots[front] {
			out[front] = append(out[front], to)
		}
		slices.Sort(out[front])
		out[front] = slices.Compact(out[front])
	}
	return out, errors.Join(errs...)
}

func TestFrontsOf(t *testing.T) {
	t.Parallel()
	const (
		front = "elements = { 10.80.0.1 . tcp . 80 : goto pick4-2, 10.80.0.2 . udp . 53 : goto stick4-1 }\n"
		slots = "elements = { 10.80.0.1 . tcp . 80 . 0x00000000 : 10.99.0.2 . 20000,\n 10.80.0.1 . tcp . 80 . 0x00000001 : 10.99.0.3 . 20000, 10.80.0.2 . udp . 53 . 0x00000000 : 10.99.0.4 . 20001"
	)
	if is, err := frontsOf(front + slots + " }"); err != nil || fmt.Sprint(is) != "map[10.80.0.1 . tcp . 80:[10.99.0.2:20000 10.99.0.3:20000] 10.80.0.2 . udp . 53:[10.99.0.4:20001]]" {
		t.Errorf("%v, %v", is, err)
	}
	for _, bad := range []string{strings.ReplaceAll(slots, ". 0x00000001 :", ". 0x00000002 :"), slots + ", 10.80.0.1 . tcp . 80 . 0x00000002 : 10.99.0.2 . 20000", slots + ", 10.80.0.3 . tcp . 80 . 0x00000000 : 10.99.0.2 . 20000"} {
		if is, err := frontsOf(front + bad); err == nil {
			t.Errorf("%s has %v", bad, is)
		}
	}
}

// slotsWhole fails unless all services in the kernel of a machine are whole.
func (g *grid) slotsWhole(machine string) {
	g.t.Helper()
	if fronts, err := frontsOf(g.rules(machine)); err != nil || len(fronts) == 0 {
		g.t.Errorf("the kernel of %s has %v: %v", machine, fronts, err)
	}
}

// whole waits until all kernels have the tasks of web behind front, and no others.
func (l *load) whole() {
	l.t.Helper()
	front := fmt.Sprintf("%s . tcp . 80", l.virtual("front").Addr())
	for machine := range l.hosts {
		l.must(within(bound, func() error {
			var want []string
			for _, task := range l.until("look", func(*status.Status) string { return "" }).Tasks {
				if port, ok := task.Ports.Get("http"); ok && strings.HasPrefix(task.Name, "crew/web/") {
					want = append(want, fmt.Sprintf("%s:%d", task.Address, port))
				}
			}
			slices.Sort(want)
			fronts, err := frontsOf(l.rules(machine))
			if err == nil && !slices.Equal(fronts[front], want) {
				err = fmt.Errorf("on %s the service leads to %v, want %v", machine, fronts[front], want)
			}
			return err
		}))
	}
}
