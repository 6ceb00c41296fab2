package main

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/nodeagent/machine"
	"github.com/musterhq/muster/schema"
)

// deviceNode is a device file that tasks find which were given devices of a kind.
type deviceNode struct {
	kind string
	path string // with anyIndex for the index of the device
}

// anyIndex stands for the index of a device in a path.
const anyIndex = "*"

type deviceNodes []deviceNode

// String is empty: the flag has no default to show.
func (*deviceNodes) String() string { return "" }

// Type returns what stands for the value in the help.
func (*deviceNodes) Type() string { return "KIND=PATH" }

// Set parses KIND=PATH.
func (d *deviceNodes) Set(s string) error {
	kind, file, ok := strings.Cut(s, "=")
	if err := schema.CheckName(kind); !ok || err != nil || path.Clean(file) != file || !strings.HasPrefix(file, "/dev/") || strings.Count(file, anyIndex) > 1 {
		return fmt.Errorf("%q: want KIND=PATH with a path below /dev, in which %s may stand for the device's index, such as kvm=/dev/kvm or gpu=/dev/nvidia%[2]s", s, anyIndex)
	}
	*d = append(*d, deviceNode{kind, file})
	return nil
}

// deviceFiles returns the device files of what this machine offers: those that
// were typed for a kind, else those that were found, where what is offered of the
// kind is as many as was found.
func (f *flags) deviceFiles(found *machine.Facts) (map[string]host.DeviceFiles, error) {
	offered, err := f.offered(found.Devices)
	if err != nil {
		return nil, err
	}
	count := map[string]int{}
	for _, g := range offered {
		count[g.Kind] += g.Count
	}
	files := map[string]host.DeviceFiles{}
	for _, n := range f.deviceNodes {
		if count[n.kind] == 0 {
			return nil, usageError{fmt.Errorf("--device-node %s=%s: this machine offers no %s", n.kind, n.path, n.kind), fmt.Sprintf("add --device %s=COUNT", n.kind)}
		}
		of := files[n.kind]
		if !strings.Contains(n.path, anyIndex) {
			of.All = append(of.All, n.path)
		} else {
			if of.Each == nil {
				of.Each = make([][]string, count[n.kind])
			}
			for i := range of.Each {
				of.Each[i] = append(of.Each[i], strings.Replace(n.path, anyIndex, strconv.Itoa(i), 1))
			}
		}
		files[n.kind] = of
	}
	if _, typed := files[machine.GPUKind]; !typed && count[machine.GPUKind] == len(found.Files) {
		files[machine.GPUKind] = host.DeviceFiles{Each: found.Files, All: found.Shared}
	}
	return files, nil
}
