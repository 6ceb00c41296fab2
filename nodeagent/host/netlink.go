package host

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Data that waits to be read in a netlink socket is charged to no cgroup. The kernel
// lists how much that is for all such sockets of a network namespace, by inode, and the
// owner of a socket is the process that has it open.

// netlinkFree is how much there may be of it on the machine before anybody looks for whose
// it is, in bytes: the programs of a machine have next to nothing.
const netlinkFree = 4 << 20

// maxSockets is how many descriptors of a task are looked at for them.
const maxSockets = 200_000

// netlinkBuffers gives the bytes that wait in netlink sockets on the machine's network, by
// inode, as of a moment ago; nil if they are not worth a look.
type netlinkBuffers struct {
	mu sync.Mutex // guards what follows
	of map[uint64]int64
	at time.Time
}

func (n *netlinkBuffers) now() map[uint64]int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now := time.Now(); n.at.IsZero() || now.Sub(n.at) > tableFor {
		text, _ := os.ReadFile("/proc/self/net/netlink") // without: nothing is known
		n.of, n.at = parseNetlink(text), now
	}
	return n.of
}

// parseNetlink reads the kernel's table of netlink sockets.
func parseNetlink(text []byte) map[uint64]int64 {
	of, total := map[uint64]int64{}, int64(0)
	for line := range bytes.Lines(text) {
		// sk Eth Pid Groups Rmem Wmem Dump Locks Drops Inode
		f := bytes.Fields(line)
		if len(f) < 10 {
			continue
		}
		held, ok := decimal(f[4])
		inode, numbered := decimal(f[9])
		if ok && numbered && held > 0 {
			of[uint64(inode)] += held
			total += held
		}
	}
	if total < netlinkFree {
		return nil
	}
	return of
}

// heldInNetlink returns the bytes that wait in sockets which the processes have open.
func heldInNetlink(pids []int, of map[uint64]int64) int64 {
	seen, left, sum := map[uint64]bool{}, maxSockets, int64(0)
	for _, pid := range pids {
		dir, err := os.Open("/proc/" + strconv.Itoa(pid) + "/fd")
		if err != nil {
			continue // it has ended
		}
		names, _ := dir.Readdirnames(left)
		left -= len(names)
		for _, name := range names {
			inode, ok := socketOf(dir, name)
			if ok && !seen[inode] {
				seen[inode] = true
				sum += of[inode]
			}
		}
		_ = dir.Close()
		if left <= 0 {
			break
		}
	}
	return sum
}

// socketOf returns the inode of the socket that a link in dir leads to.
func socketOf(dir *os.File, name string) (uint64, bool) {
	var buffer [64]byte
	n, err := unix.Readlinkat(int(dir.Fd()), name, buffer[:])
	if err != nil {
		return 0, false
	}
	text, ok := strings.CutPrefix(string(buffer[:n]), "socket:[")
	if !ok {
		return 0, false
	}
	inode, err := strconv.ParseUint(strings.TrimSuffix(text, "]"), 10, 64)
	return inode, err == nil
}
