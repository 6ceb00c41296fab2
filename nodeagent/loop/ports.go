package loop

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/schema"
	"golang.org/x/sys/unix"
)

// checkPorts errs when one of ports is taken. It binds and does not listen, so
// that nobody can connect to the agent by mistake.
func checkPorts(ports schema.Ports) error {
	for _, p := range ports {
		if err := checkPort(p.Port); err != nil {
			return fmt.Errorf("port %s (%d): %w", p.Name, p.Port, err)
		}
	}
	return nil
}

// checkPort binds port on all addresses, of TCP and UDP, IPv6 and IPv4: a task
// may use any of them.
func checkPort(port int) error {
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
		err := bind(unix.AF_INET6, kind, &unix.SockaddrInet6{Port: port})
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL) {
			err = nil // a machine without IPv6
		}
		if err == nil {
			err = bind(unix.AF_INET, kind, &unix.SockaddrInet4{Port: port})
		}
		switch {
		case errors.Is(err, unix.EACCES): // it is the task's right that matters, not this agent's
		case err != nil && kind == unix.SOCK_DGRAM:
			return fmt.Errorf("%w (UDP)", err)
		case err != nil:
			return err
		}
	}
	return nil
}

func bind(family, kind int, addr unix.Sockaddr) error {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	// Connections of a process that has just ended are no obstacle; a
	// listener still is. For UDP it would mean to share the port.
	if kind == unix.SOCK_STREAM {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return fmt.Errorf("setsockopt: %w", err)
		}
	}
	if family == unix.AF_INET6 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return fmt.Errorf("setsockopt: %w", err)
		}
	}
	return unix.Bind(fd, addr)
}

// listeners returns the ports of r, sorted, on which something listens.
func listeners(r schema.PortRange) ([]int, error) {
	var ports []int
	for _, name := range []string{"tcp", "tcp6", "udp", "udp6"} {
		b, err := os.ReadFile("/proc/net/" + name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a machine without IPv6
		}
		if err != nil {
			return nil, err
		}
		state := "0A" // listens
		if strings.HasPrefix(name, "udp") {
			state = "07" // is bound, and to no peer
		}
		ports = append(ports, parseListeners(b, state, r)...)
	}
	slices.Sort(ports)
	return slices.Compact(ports), nil
}

// parseListeners reads the kernel's socket table: local address in the second
// column as hexadecimal address:port, state in the fourth.
func parseListeners(table []byte, state string, r schema.PortRange) []int {
	var ports []int
	for s := bufio.NewScanner(bytes.NewReader(table)); s.Scan(); {
		f := bytes.Fields(s.Bytes())
		if len(f) < 4 || string(f[3]) != state {
			continue
		}
		_, hex, _ := bytes.Cut(f[1], []byte(":"))
		p, err := strconv.ParseUint(string(hex), 16, 16)
		if err == nil && int(p) >= r.First && int(p) <= r.Last {
			ports = append(ports, int(p))
		}
	}
	return ports
}
