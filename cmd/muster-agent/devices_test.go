package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/nodeagent/machine"
	"github.com/musterhq/muster/schema"
)

// TestDeviceFiles: what was found of GPUs holds until it is said otherwise, and
// where as many are offered as there are.
func TestDeviceFiles(t *testing.T) {
	t.Parallel()
	found := machine.Facts{
		Devices: []schema.DeviceGroup{{Kind: "gpu", Count: 2}}, Files: [][]string{{"/dev/nvidia0"}, {"/dev/nvidia1"}}, Shared: []string{"/dev/nvidiactl"},
	}
	gpus := host.DeviceFiles{Each: found.Files, All: found.Shared}
	for _, c := range []struct {
		devices devices
		nodes   string
		want    map[string]host.DeviceFiles
		err     string
	}{
		{want: map[string]host.DeviceFiles{"gpu": gpus}},
		{devices: devices{{Kind: "gpu", Model: "T4", Count: 2}}, want: map[string]host.DeviceFiles{"gpu": gpus}},
		{devices: devices{{Kind: "gpu", Count: 1}}, want: map[string]host.DeviceFiles{}},
		{
			devices: devices{{Kind: "kvm", Count: 9}}, nodes: "kvm=/dev/kvm gpu=/dev/dri/card* gpu=/dev/dri/renderD*",
			want: map[string]host.DeviceFiles{
				"kvm": {All: []string{"/dev/kvm"}}, "gpu": {Each: [][]string{{"/dev/dri/card0", "/dev/dri/renderD0"}, {"/dev/dri/card1", "/dev/dri/renderD1"}}},
			},
		},
		{nodes: "kvm=/dev/kvm", err: "--device-node kvm=/dev/kvm: this machine offers no kvm"},
		{nodes: "kvm=/etc/shadow", err: "want KIND=PATH with a path below /dev"},
		{nodes: "kvm=/dev/../etc/shadow", err: "want KIND=PATH with a path below /dev"},
		{nodes: "kvm", err: "want KIND=PATH"},
	} {
		f := &flags{devices: c.devices}
		var err error
		for _, n := range strings.Fields(c.nodes) {
			if err == nil {
				err = f.deviceNodes.Set(n)
			}
		}
		var got map[string]host.DeviceFiles
		if err == nil {
			got, err = f.deviceFiles(&found)
		}
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: %v, want %s", c.nodes, err, c.err)
			}
		case err != nil || !cmp.Equal(got, c.want):
			t.Errorf("%v, %q: %v, %v, want %v", c.devices, c.nodes, got, err, c.want)
		}
	}
}
