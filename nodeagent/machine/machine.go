package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/schema"
	"golang.org/x/sys/unix"
)

// Facts are what is found of a machine.
type Facts struct {
	// Attributes are arch, os, kernel and hostname, and, if the kernel shows them,
	// cpu.model, cpu.cores, cpu.threads, memory.bytes, disk.kind and disk.NAME, gpu.count
	// and gpu.model.
	Attributes map[string]string
	// Devices are the GPUs that tasks can use, by the order of their PCI
	// addresses.
	Devices []schema.DeviceGroup
	// Files are the device files of each of Devices, by its index, and Shared those
	// that whichever needs: absolute paths below /dev.
	Files  [][]string
	Shared []string
	Notes  []string
	// Hardware is the identity that the firmware gives the machine. It distinguishes
	// machines that were made from the same image, with the same /etc/machine-id. "" where
	// there is none, or only root may read it.
	Hardware string
}

// Find looks at the machine whose files are below root, / but for tests; state
// is the agent's state directory.
func Find(root, state string) Facts {
	f := Facts{Attributes: map[string]string{"arch": runtime.GOARCH, "os": runtime.GOOS}}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		f.Attributes["kernel"] = unix.ByteSliceToString(u.Release[:])
		f.Attributes["hostname"] = unix.ByteSliceToString(u.Nodename[:])
	}
	r := files(root)
	for _, found := range []map[string]string{r.processors(), r.memory(), r.disks(), {"disk.kind": r.diskOf(state)}} {
		for k, v := range found {
			if v != "" {
				f.Attributes[k] = v
			}
		}
	}
	f.gpus(r)
	f.Hardware = r.hardware()
	return f
}

// files is the directory below which the kernel's files are.
type files string

// path returns the path of a file of the machine.
func (r files) path(name ...string) string {
	return filepath.Join(append([]string{string(r)}, name...)...)
}

// read returns a file without the white space around it, "" if it cannot be read.
func (r files) read(name ...string) string {
	b, _ := os.ReadFile(r.path(name...))
	return strings.TrimSpace(string(b))
}

// list returns the names in a directory, sorted; none if it cannot be read.
func (r files) list(name ...string) []string {
	entries, _ := os.ReadDir(r.path(name...))
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// field returns what stands behind the first "key :" of a file, "" without one.
func (r files) field(key string, name ...string) string {
	for line := range strings.Lines(r.read(name...)) {
		if k, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	return ""
}

// hardware returns the UUID of the firmware. Some makers give all their boards the
// same, of few different digits.
func (r files) hardware() string {
	id := strings.ToLower(r.read("sys/class/dmi/id/product_uuid"))
	digits := map[rune]bool{}
	for _, c := range strings.ReplaceAll(id, "-", "") {
		digits[c] = true
	}
	if len(digits) < 5 {
		return ""
	}
	return id
}

// processors counts the processors that are on line, and the cores they are in.
func (r files) processors() map[string]string {
	const dir = "sys/devices/system/cpu"
	threads, cores := 0, map[[2]string]bool{}
	for _, name := range r.list(dir) {
		number, ok := strings.CutPrefix(name, "cpu")
		if _, err := strconv.Atoi(number); !ok || err != nil || r.read(dir, name, "online") == "0" {
			continue
		}
		threads++
		if core := r.read(dir, name, "topology/core_id"); core != "" {
			cores[[2]string{r.read(dir, name, "topology/physical_package_id"), core}] = true
		}
	}
	return map[string]string{
		"cpu.model": r.field("model name", "proc/cpuinfo"), "cpu.threads": positive(threads), "cpu.cores": positive(len(cores)),
	}
}

// positive returns n in digits, "" for nothing.
func positive(n int) string {
	if n <= 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// memory returns what the kernel has of memory.
func (r files) memory() map[string]string {
	number, ok := strings.CutSuffix(r.field("MemTotal", "proc/meminfo"), " kB")
	n, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil {
		return nil
	}
	return map[string]string{"memory.bytes": strconv.FormatInt(n<<10, 10)}
}

// disks returns the size and the kind of each disk. What has no device below it
// is none: loops, RAM disks, volumes that are made of disks.
func (r files) disks() map[string]string {
	found := map[string]string{}
	for _, name := range r.list("sys/block") {
		sectors, err := strconv.ParseInt(r.read("sys/block", name, "size"), 10, 64)
		if _, gone := os.Stat(r.path("sys/block", name, "device")); gone != nil || err != nil || sectors == 0 {
			continue
		}
		const sector = 512 // bytes, whatever the disk's own
		kind := r.kind("sys/block", name)
		if schema.IsLabelKey("disk." + name) {
			found["disk."+name] = strings.TrimSpace(fmt.Sprintf("%s %d", kind, sectors*sector))
		}
	}
	return found
}

// kind returns the kind of the disk whose directory in sysfs that is, as its
// driver says: that of a virtual machine may not know.
func (r files) kind(dir ...string) string {
	switch r.read(append(slices.Clone(dir), "queue/rotational")...) {
	case "0":
		return "ssd"
	case "1":
		return "rotational"
	}
	return ""
}

// diskOf returns the kind of the disk that holds a directory; "" if it is on no
// disk, or on several.
func (r files) diskOf(dir string) string {
	var s unix.Stat_t
	if unix.Stat(dir, &s) != nil {
		return ""
	}
	device := r.path("sys/dev/block", fmt.Sprintf("%d:%d", unix.Major(s.Dev), unix.Minor(s.Dev)))
	real, err := filepath.EvalSymlinks(device)
	if err != nil {
		return ""
	}
	if _, err := os.Stat(filepath.Join(real, "partition")); err == nil {
		real = filepath.Dir(real)
	}
	return files("/").kind(real)
}
