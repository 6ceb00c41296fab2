package host

import (
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/schema"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// DeviceFiles are the files below /dev that tasks find which were given devices of
// a kind. Paths that are not there are left out.
type DeviceFiles struct {
	Each [][]string // by index of the device
	All  []string   // for whichever, such as /dev/nvidiactl
}

// Device is the file of a device that a task was given.
type Device struct {
	Path   string
	Mode   uint32 // its type, such as unix.S_IFCHR
	Number uint64 // as unix.Mkdev makes it
}

// findDevices finds the files of the devices of a task among those that there are, by
// kind.
func findDevices(there map[string]DeviceFiles, uses []schema.DeviceUse) (files []Device, note string) {
	var none []string
	found := map[string]bool{}
	for _, u := range uses {
		of := there[u.Kind]
		paths := slices.Clone(of.All)
		if u.Index < len(of.Each) {
			paths = append(paths, of.Each[u.Index]...)
		}
		known := false
		for _, path := range paths {
			d, ok := deviceAt(path)
			if known = known || ok; ok && !found[path] {
				found[path] = true
				files = append(files, d)
			}
		}
		if !known {
			none = append(none, u.Kind+" "+strconv.Itoa(u.Index))
		}
	}
	if len(none) > 0 {
		note = "no device file is known of " + strings.Join(none, ", ") + " (--device-node of its agent)"
	}
	return files, note
}

// deviceAt returns the device of a file; false if it is none, or not there.
func deviceAt(path string) (Device, bool) {
	var s unix.Stat_t
	if unix.Stat(path, &s) != nil || s.Mode&unix.S_IFMT != unix.S_IFCHR && s.Mode&unix.S_IFMT != unix.S_IFBLK {
		return Device{}, false
	}
	return Device{path, s.Mode & unix.S_IFMT, s.Rdev}, true
}

// The numbers of what every task finds (Linux, Documentation/admin-guide/devices.txt).
var everybodys = []struct{ major, minor int64 }{
	{1, 3}, {1, 5}, {1, 7}, {1, 8}, {1, 9}, // null, zero, full, random, urandom
	{5, 0}, {5, 2}, {136, -1}, // tty, ptmx, and terminals
}

// deviceRules allow a task what it was given and what all have, and nothing else:
// no node can be made either.
func deviceRules(files []Device) []specs.LinuxDeviceCgroup {
	whichever := int64(-1)
	rules := []specs.LinuxDeviceCgroup{{Type: "a", Major: &whichever, Minor: &whichever, Access: "rwm"}}
	allow := func(kind string, major, minor int64) {
		rules = append(rules, specs.LinuxDeviceCgroup{Allow: true, Type: kind, Major: &major, Minor: &minor, Access: "rw"})
	}
	for _, d := range everybodys {
		allow("c", d.major, d.minor)
	}
	for _, f := range files {
		kind := "c"
		if f.Mode == unix.S_IFBLK {
			kind = "b"
		}
		allow(kind, int64(unix.Major(f.Number)), int64(unix.Minor(f.Number)))
	}
	return rules
}
