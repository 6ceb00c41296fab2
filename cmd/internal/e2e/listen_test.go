package e2e_test

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// socket is an entry of a kernel's socket table through which somebody else
// could reach its owner.
type socket struct {
	inode string
	name  string // "tcp 127.0.0.1:80", "udp …", "unix /path", "unix @abstract", "packet …"
}

// open lists the sockets in the tables of pid's network namespace that listen,
// are bound, or have a name.
func open(pid int) ([]socket, error) {
	var out []socket
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6", "udplite", "udplite6", "raw", "raw6", "unix", "packet"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the kernel does not have it
		}
		if err != nil {
			return nil, err
		}
		for i, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
			if i == 0 {
				continue // the heads of the columns
			}
			s, err := entry(table, strings.Fields(line))
			if err != nil {
				return nil, fmt.Errorf("/proc/%d/net/%s: %q: %w", pid, table, line, err)
			}
			if s.name != "" {
				out = append(out, s)
			}
		}
	}
	return out, nil
}

// entry reads a line of a table; its name is "" if nobody can reach it.
func entry(table string, f []string) (socket, error) {
	const (
		listens     = "0A" // of tcp, include/net/tcp_states.h
		inodeOfUnix = 6    // columns
		nameOfUnix  = 7
	)
	switch {
	case table == "unix" && len(f) > nameOfUnix:
		return socket{f[inodeOfUnix], "unix " + f[nameOfUnix]}, nil
	case table == "unix" && len(f) == nameOfUnix:
		return socket{}, nil
	case table == "packet" && len(f) >= 9:
		return socket{f[8], "packet"}, nil
	case table == "unix" || len(f) < 10:
		return socket{}, errors.New("too few columns")
	}
	if strings.HasPrefix(table, "tcp") && f[3] != listens {
		return socket{}, nil
	}
	addr, err := address(f[1])
	return socket{f[9], strings.TrimSuffix(table, "6") + " " + addr.String()}, err
}

// address reads an address as the tables write it: words in the machine's
// order, in hexadecimal digits.
func address(s string) (netip.AddrPort, error) {
	ip, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(ip)
	if err != nil {
		return netip.AddrPort{}, err
	}
	for i := 0; i+4 <= len(b); i += 4 {
		binary.BigEndian.PutUint32(b[i:], binary.NativeEndian.Uint32(b[i:]))
	}
	a, ok := netip.AddrFromSlice(b)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("address of %d bytes", len(b))
	}
	n, err := strconv.ParseUint(port, 16, 16)
	return netip.AddrPortFrom(a, uint16(n)), err
}

// reachable lists the sockets of pid that somebody else could reach; nothing if
// it has ended.
func reachable(pid int) ([]string, error) {
	// The process may close a socket while we look, and another get its
	// number: tables before descriptors would miss one, so both are read
	// until they agree twice.
	var was []string
	for {
		names, err := reachableOnce(pid)
		if err != nil || was != nil && slices.Equal(was, names) {
			return names, err
		}
		was = append([]string{}, names...)
	}
}

func reachableOnce(pid int) ([]string, error) {
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	mine := map[string]bool{}
	for _, fd := range fds {
		target, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, fd.Name())) // closed meanwhile
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			mine[strings.TrimSuffix(inode, "]")] = true
		}
	}
	if len(mine) == 0 {
		return nil, nil
	}
	table, err := open(pid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, s := range table {
		if mine[s.inode] {
			names = append(names, s.name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// TestSocketTables holds the audit itself: it must see each kind of socket that
// a cell must not have.
func TestSocketTables(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	var want []string
	for _, s := range []struct{ network, address string }{
		{"tcp4", "0.0.0.0:0"},
		{"tcp4", "127.0.0.1:0"},
		{"tcp6", "[::1]:0"},
		{"tcp", "[::]:0"},
		{"unix", "@muster-e2e-abstract-" + strconv.Itoa(os.Getpid())},
		{"unix", filepath.Join(t.TempDir(), "s")},
	} {
		l, err := lc.Listen(t.Context(), s.network, s.address)
		if err != nil {
			if strings.Contains(s.address, "::") {
				t.Logf("no IPv6 here: %v", err)
				continue
			}
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		want = append(want, strings.Trim(s.network, "46")+" "+l.Addr().String())
	}
	for _, s := range []struct{ network, address string }{{"udp4", "0.0.0.0:0"}, {"unixgram", "@muster-e2e-datagram-" + strconv.Itoa(os.Getpid())}} {
		l, err := lc.ListenPacket(t.Context(), s.network, s.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		want = append(want, strings.TrimSuffix(strings.Trim(s.network, "46"), "gram")+" "+l.LocalAddr().String())
	}
	got, err := reachable(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("%s is open, and not in the list: %q", w, got)
		}
	}
}

// part is what a process of a cell is.
type part string

const (
	masterPart  part = "master"
	agentPart   part = "agent"
	keeperPart  part = "keeper"
	compilePart part = "compile child"
	taskPart    part = "task"
)

// parts returns what each process of the cell is.
func (c *cell) parts() (map[int]part, error) {
	list, err := all()
	if err != nil {
		return nil, err
	}
	out := map[int]part{c.master.pid(): masterPart, c.agent.pid(): agentPart}
	for _, p := range list {
		words := p.words()
		switch {
		case strings.HasPrefix(words, filepath.Join(c.bin, "muster-keeper")+" "+c.dir):
			out[p.pid] = keeperPart
		// Between its fork and its exec a child has all that its parent has.
		case p.parent == c.master.pid() && strings.HasSuffix(words, " compile-child"):
			out[p.pid] = compilePart
		case strings.HasPrefix(variable(p.environ(), "MUSTER_TASK_DIR"), c.dir+"/"):
			out[p.pid] = taskPart
		}
	}
	return out, nil
}

// slow is a package that CUE evaluates for longer than a master lets it.
const slow = `package slow

import "list"

x: [for i in list.Range(0, 400, 1) {[for j in list.Range(0, 400, 1) {i*j}]}]
y: [for a in x for b in a if b > 1000 {b}]
`

// testListeners audits a running cell, a compile child included.
func testListeners(t *testing.T, c *cell) {
	page, err := c.api.Page(t.Context())
	c.must(err)
	_, tcp, _ := strings.Cut(strings.TrimSuffix(page.URL, "/"), "@")
	allowed := map[part][]string{
		// The API and metrics; the link; each end of the link that the
		// master has accepted bears the name of the listener.
		masterPart: {"tcp " + tcp, strings.Replace(c.url, ":", " ", 1), "unix " + c.path("link", "agent.sock")},
		agentPart:  nil, // dials out
		keeperPart: nil, // is spoken to by signals and files
		// CUE is evaluated with no network at all.
		compilePart: nil,
		// The script's: a task may listen where it likes, this one does not.
		taskPart: nil,
	}
	a := &audit{cell: c, allowed: allowed, seen: map[part]int{}}
	a.check(t)
	// One that takes seconds, until a newer commit ends it.
	const slowFile = "teams/crew/slow/slow.cue"
	c.commit("something slow to compile", map[string][]byte{slowFile: []byte(slow)})
	for give := time.Now().Add(time.Minute); a.seen[compilePart] == 0 && time.Now().Before(give) && !t.Failed(); {
		a.check(t)
	}
	c.converge(c.commit("nothing slow", map[string][]byte{slowFile: nil}))
	for _, what := range []part{masterPart, agentPart, keeperPart, compilePart, taskPart} {
		if a.seen[what] == 0 {
			t.Errorf("no %s was audited", what)
		}
	}
	t.Logf("audited: %v", a.seen)
}

// audit compares what the processes of a cell have open with what they may.
type audit struct {
	cell    *cell
	allowed map[part][]string
	seen    map[part]int // how often each was looked at
}

func (a *audit) check(t *testing.T) {
	t.Helper()
	parts, err := a.cell.parts()
	if err != nil {
		t.Error(err)
	}
	for pid, what := range parts {
		names, err := reachable(pid)
		if err != nil {
			t.Error(err)
		}
		a.seen[what]++
		for _, name := range names {
			if !slices.Contains(a.allowed[what], name) {
				t.Errorf("%s (pid %d) has %s, which is not on the list of this test", what, pid, name)
			}
		}
		if what == masterPart && len(names) != len(a.allowed[masterPart]) {
			t.Errorf("the master has %q, want %q: the audit does not see it all", names, a.allowed[masterPart])
		}
	}
}

// testModes wants the directories of the cell closed to others.
func testModes(t *testing.T, c *cell) {
	for path, want := range map[string]os.FileMode{
		c.path("link"):               os.ModeDir | 0o700,
		c.path("link", "agent.sock"): os.ModeSocket | 0o600,
		c.path("master"):             os.ModeDir | 0o700,
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%s has mode %v, want %v", path, info.Mode(), want)
		}
	}
}
