package keeper

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// liarArg makes the test binary a process that says of its arguments and environment
// that each is as large as liarBytes.
const (
	liarArg   = "liar"
	liarBytes = 512 << 20
)

// mmMap is struct prctl_mm_map of linux/prctl.h.
type mmMap struct {
	startCode, endCode, startData, endData, startBrk, brk, startStack uint64
	argStart, argEnd, envStart, envEnd                                uint64
	auxv                                                              uint64
	auxvSize, exe                                                     uint32
}

// lie is the liar.
func lie() int {
	err := overstate()
	fmt.Println("up", err)
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
	return 0
}

// overstate has arguments and environment begin and end around pages that nobody has
// written to, which take no memory.
func overstate() error {
	memory, err := unix.Mmap(-1, 0, liarBytes, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return err
	}
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return err
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) // from the third of proc_pid_stat(5)
	field := func(n int) uint64 {
		v, _ := strconv.ParseUint(string(f[n-3]), 10, 64)
		return v
	}
	at := uint64(uintptr(unsafe.Pointer(&memory[0])))
	m := mmMap{
		startCode: field(26), endCode: field(27), startStack: field(28), startData: field(45), endData: field(46), startBrk: field(47), brk: field(47),
		argStart: at, argEnd: at + liarBytes, envStart: at, envEnd: at + liarBytes, exe: ^uint32(0),
	}
	return unix.Prctl(unix.PR_SET_MM, unix.PR_SET_MM_MAP, uintptr(unsafe.Pointer(&m)), unsafe.Sizeof(m), 0)
}

// TestLiar: a process that says of its arguments and environment that they are larger than
// the machine's memory takes none of the caller's.
func TestLiar(t *testing.T) { //nolint:paralleltest // it counts what the process allocates
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	began := startNow()
	c := exec.Command(exe, liarArg)
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = stdin.Close()
		if err := c.Wait(); err != nil {
			t.Error(err)
		}
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "up") {
		t.Fatalf("%q, %v", line, err)
	}
	if line != "up <nil>\n" {
		t.Skipf("NOT TESTED: the kernel does not take it: %s", line)
	}
	for what, look := range map[string]func() error{
		"looking for keepers": func() error {
			_, err := Scan(t.TempDir())
			return err
		},
		"looking for marks": func() error {
			_, err := carrying("MARK="+t.TempDir(), Identity{}, began).list()
			return err
		},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := look()
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; err != nil || got > liarBytes/4 {
			t.Errorf("%s allocates %d MiB, %v", what, got>>20, err)
		}
	}
}
