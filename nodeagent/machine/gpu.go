package machine

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// GPUKind is the kind of device that GPUs are offered as.
const GPUKind = "gpu"

// displayClass begins the PCI class of display controllers, and drawsClass that
// of those among them that draw by themselves.
const (
	displayClass = "0x03"
	drawsClass   = "0x0300"
)

// The makers of display controllers that compute. Those of others draw a screen,
// most of them the console of a server or of a virtual machine.
const (
	nvidia = "0x10de"
	amd    = "0x1002"
	intel  = "0x8086"
)

// gpus adds the display controllers that tasks can use: those with a device file that a
// driver has made. Others get a note.
func (f *Facts) gpus(r files) {
	var found []schema.DeviceGroup
	for _, address := range r.list("sys/bus/pci/devices") {
		dir := "sys/bus/pci/devices/" + address
		vendor, device := r.read(dir, "vendor"), r.read(dir, "device")
		if class := r.read(dir, "class"); !strings.HasPrefix(class, displayClass) || !computes(class, vendor) {
			continue
		}
		nodes := r.nodes(address, vendor)
		if len(nodes) == 0 {
			f.Notes = append(f.Notes, fmt.Sprintf("the display controller %s:%s at %s has no driver that tasks could use: it is not offered as a gpu",
				strings.TrimPrefix(vendor, "0x"), strings.TrimPrefix(device, "0x"), address))
			continue
		}
		found = append(found, schema.DeviceGroup{Kind: GPUKind, Model: r.model(address, vendor, device), Count: 1, Attributes: r.ofDevice(address)})
		f.Files = append(f.Files, nodes)
		f.share(vendor)
	}
	for i := 0; i < len(found) && len(f.Devices) < schema.MaxDeviceGroups; {
		g := found[i]
		for i++; i < len(found) && found[i].Equal(found[i-1]); i++ {
			g.Count++
		}
		f.Devices = append(f.Devices, g)
	}
	if err := schema.CheckDevices(f.Devices); err != nil {
		f.Devices, f.Files, f.Shared, f.Notes = nil, nil, nil, append(f.Notes, "GPUs are not offered: "+err.Error())
	}
	f.describe()
}

// ofDevice returns the attributes of a GPU: the NUMA node that it belongs to, on a machine that
// has several, and its memory, where its driver says that in /sys (amdgpu).
func (r files) ofDevice(address string) map[string]string {
	out := map[string]string{}
	if node := r.read("sys/bus/pci/devices", address, "numa_node"); node != "" && !strings.HasPrefix(node, "-") {
		out[schema.DeviceNUMA] = node
	}
	bytes := r.read("sys/bus/pci/devices", address, "mem_info_vram_total")
	if _, _, ok := schema.ParseAmount(bytes); ok { // a driver that says something else has a GPU all the same
		out[schema.DeviceMemory] = bytes
	}
	return out
}

// describe sets the attributes of the GPUs.
func (f *Facts) describe() {
	count := 0
	var models []string
	for _, g := range f.Devices {
		count += g.Count
		if g.Model != "" && !slices.Contains(models, g.Model) {
			models = append(models, g.Model)
		}
	}
	if count > 0 {
		f.Attributes["gpu.count"] = positive(count)
	}
	if model := strings.Join(models, ","); model != "" && len(model) <= schema.MaxLabelValue {
		f.Attributes["gpu.model"] = model
	}
}

// computes reports whether a display controller is one that is bought to compute.
// Intel's that also draw are part of the processor.
func computes(class, vendor string) bool {
	return vendor == nvidia || vendor == amd || vendor == intel && !strings.HasPrefix(class, drawsClass)
}

// shared are the device files that programs open for whichever GPU of a maker.
var shared = map[string][]string{
	nvidia: {"/dev/nvidiactl", "/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools"},
	amd:    {"/dev/kfd"},
}

// share adds the shared files of a maker. Drivers make some of them when they are
// first asked for, so it is not known yet which there are.
func (f *Facts) share(vendor string) {
	for _, path := range shared[vendor] {
		if !slices.Contains(f.Shared, path) {
			f.Shared = append(f.Shared, path)
		}
	}
}

// nodes returns the device files by which a task uses a GPU.
func (r files) nodes(address, vendor string) []string {
	var nodes []string
	if vendor == nvidia {
		if minor := r.field("Device Minor", "proc/driver/nvidia/gpus", address, "information"); minor != "" {
			nodes = append(nodes, "/dev/nvidia"+minor)
		}
	}
	for _, name := range r.list("sys/bus/pci/devices", address, "drm") {
		if strings.HasPrefix(name, "renderD") {
			nodes = append(nodes, "/dev/dri/"+name)
		}
	}
	return slices.DeleteFunc(nodes, func(n string) bool {
		_, err := os.Stat(r.path(n))
		return err != nil
	})
}

// idFiles are where distributions have the names of PCI devices.
var idFiles = []string{"usr/share/misc/pci.ids", "usr/share/hwdata/pci.ids"}

// model returns the name of a GPU: as its driver says, else as the machine's
// list of PCI devices does, else "".
func (r files) model(address, vendor, device string) string {
	if vendor == nvidia {
		if model := r.field("Model", "proc/driver/nvidia/gpus", address, "information"); model != "" {
			return strings.TrimPrefix(strings.TrimPrefix(model, "NVIDIA "), "Tesla ")
		}
	}
	for _, name := range idFiles {
		if model := r.listed(name, vendor, device); model != "" {
			return model
		}
	}
	return ""
}

// listed looks a device up in a list: vendors stand at the begin of a line, their
// devices behind a tab. Of "TU104GL [Tesla T4]" the name is in the brackets.
func (r files) listed(name, vendor, device string) string {
	file, err := os.Open(r.path(name))
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }() // it was only read
	ours := false
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := lines.Text()
		switch {
		case line == "" || line[0] == '#':
		case line[0] != '\t':
			ours = strings.HasPrefix(line, strings.TrimPrefix(vendor, "0x")+" ")
		case ours && strings.HasPrefix(line, "\t"+strings.TrimPrefix(device, "0x")+" "):
			text := strings.TrimSpace(line[len("\t0000 "):])
			if _, inner, ok := strings.Cut(text, "["); ok {
				text, _, _ = strings.Cut(inner, "]")
			}
			return strings.TrimPrefix(text, "Tesla ")
		}
	}
	return ""
}
