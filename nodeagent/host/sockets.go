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

// Some of what sockets hold is charged to no cgroup: data that waits to be read in a netlink
// socket, and a datagram that is being put together (MSG_MORE of send(2)). The kernel lists
// how much that is for all such sockets of a network namespace, by inode, and the owner of a
// socket is the process that has it open.

// socketsFree is how much there may be of it on the machine before anybody looks for whose
// it is, in bytes: the programs of a machine have next to nothing.
const socketsFree = 4 << 20

// maxSockets is how many descriptors of a task are looked at for them.
const maxSockets = 200_000

// socketTables are the kernel's, below /proc/self/net.
var socketTables = []string{"netlink", "udp", "udp6"}

// socketBuffers gives the bytes that sockets on the machine's network hold and no cgroup is
// charged for, by inode, as of a moment ago; nil if they are not worth a look.
type socketBuffers struct {
	mu sync.Mutex // guards what follows
	of map[uint64]int64
	at time.Time
}

func (b *socketBuffers) now() map[uint64]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now := time.Now(); b.at.IsZero() || now.Sub(b.at) > tableFor {
		var texts [][]byte
		for _, table := range socketTables {
			text, _ := os.ReadFile("/proc/self/net/" + table) // without: nothing is known
			texts = append(texts, text)
		}
		b.of, b.at = parseSockets(texts...), now
	}
	return b.of
}

// parseSockets reads the kernel's tables of sockets.
func parseSockets(texts ...[]byte) map[uint64]int64 {
	of, total := map[uint64]int64{}, int64(0)
	for line := range bytes.Lines(bytes.Join(texts, []byte("\n"))) {
		// sk Eth Pid Groups Rmem Wmem Dump Locks Drops Inode, or
		// sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode
		f := bytes.Fields(line)
		if len(f) < 10 {
			continue
		}
		held, ok := heldIn(f[4])
		inode, numbered := decimal(f[9])
		if ok && numbered && held > 0 {
			of[uint64(inode)] += held
			total += held
		}
	}
	if total < socketsFree {
		return nil
	}
	return of
}

// heldIn returns how much there is by the fifth field: what a netlink socket has received,
// or, in hexadecimal, what one of UDP is to send. What that has received is charged.
func heldIn(field []byte) (int64, bool) {
	send, _, udp := bytes.Cut(field, []byte(":"))
	if !udp {
		return decimal(field)
	}
	n, err := strconv.ParseInt(string(send), 16, 64)
	return n, err == nil
}

// heldInSockets returns the bytes that are held in sockets which the processes have open.
func heldInSockets(pids []int, of map[uint64]int64) int64 {
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
