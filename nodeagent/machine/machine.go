package machine

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/musterhq/muster/schema"
	"golang.org/x/sys/unix"
)

// cgroupLimits are where a container's own limit of memory is seen, v2 and v1.
var cgroupLimits = []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}

// Find returns what this machine is. Disk space is that of the file system that
// holds dir. Name is the host's, as CleanName makes it. Ports and AgentVersion
// are left to the caller.
func Find(dir string) (schema.MachineInfo, error) {
	var info schema.MachineInfo
	host, err := os.Hostname()
	if err != nil {
		return info, fmt.Errorf("name of this host: %w", err)
	}
	info.Name = CleanName(host)
	if info.Boot, err = bootID(); err != nil {
		return info, err
	}
	if info.Capacity, err = capacity(dir); err != nil {
		return info, err
	}
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return info, fmt.Errorf("uname: %w", err)
	}
	info.Attributes = map[string]string{
		"arch":   runtime.GOARCH,
		"os":     runtime.GOOS,
		"kernel": unix.ByteSliceToString(uts.Release[:]),
	}
	return info, nil
}

// CleanName makes a name out of a host's: lower case, with a hyphen for what a
// name cannot have, and not too long. It is "" when nothing is left.
func CleanName(host string) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(host))
	if len(clean) > schema.MaxNameLen {
		clean = clean[:schema.MaxNameLen]
	}
	return strings.Trim(clean, "-")
}

// bootID returns the kernel's id of this boot.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// capacity returns what the machine has for tasks: the cores that the agent may
// use, the memory of the machine or of the container that it is in, and the
// free space of dir's file system.
func capacity(dir string) (schema.Resources, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return schema.Resources{}, fmt.Errorf("memory of this machine: %w", err)
	}
	ram, err := parseMemTotal(b)
	if err != nil {
		return schema.Resources{}, err
	}
	for _, name := range cgroupLimits {
		if b, err := os.ReadFile(name); err == nil {
			ram = min(ram, parseLimit(b, ram))
		}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return schema.Resources{}, fmt.Errorf("disk space of %s: %w", dir, err)
	}
	return schema.Resources{
		CPUMilli:  int64(runtime.NumCPU()) * 1000,
		RAMBytes:  ram,
		DiskBytes: int64(fs.Bavail) * fs.Bsize,
	}, nil
}

// parseMemTotal reads MemTotal, which is in KiB, from /proc/meminfo.
func parseMemTotal(b []byte) (int64, error) {
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) >= 2 && f[0] == "MemTotal:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("memory of this machine: %w", err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("memory of this machine: no MemTotal in /proc/meminfo")
}

// parseLimit reads a cgroup's limit; without one ("max", or v1's huge number)
// it is all.
func parseLimit(b []byte, all int64) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil || n <= 0 {
		return all
	}
	return n
}
