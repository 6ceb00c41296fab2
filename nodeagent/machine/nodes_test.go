package machine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/machine"
)

// sysfs are files of a machine's kernel.
type sysfs map[string]string

// core adds a core of a socket; twin is the number of its processor core.
func (s sysfs) core(n, socket, twin int) {
	dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/", n)
	s[dir+"topology/physical_package_id"], s[dir+"topology/core_id"] = fmt.Sprint(socket), fmt.Sprint(twin)
}

// node adds a NUMA node.
func (s sysfs) node(n int, cpulist string, kib int) {
	dir := fmt.Sprintf("sys/devices/system/node/node%d/", n)
	s[dir+"cpulist"], s[dir+"meminfo"] = cpulist, fmt.Sprintf("Node %d MemTotal:       %d kB\nNode %[1]d MemFree:        1 kB\n", n, kib)
}

func TestTopology(t *testing.T) {
	t.Parallel()
	type node = nodeagent.NUMANode
	for name, c := range map[string]struct {
		make         func(sysfs)
		want         nodeagent.Topology
		nodes, cores string
		first        string // of the nodes
	}{
		"nothing is known": {make: func(sysfs) {}},
		"one node": {
			make:  func(s sysfs) { s.core(0, 0, 0); s.core(1, 0, 1); s.node(0, "0-1", 2) },
			want:  nodeagent.Topology{Nodes: []node{{ID: 0, Cores: []int{0, 1}, Memory: 2048}}},
			nodes: "1", cores: "2", first: "2 cores, 2048 bytes",
		},
		"two sockets with threads, one off line": {
			make: func(s sysfs) {
				for n := range 8 {
					s.core(n, n%4/2, n%2)
				}
				s["sys/devices/system/cpu/cpu7/online"], s["sys/devices/system/cpu/cpu6/online"] = "0", "1"
				s.node(0, "0-1,4-5", 1)
				s.node(1, "2-3,6", 1)
				s["sys/devices/system/node/has_cpu"] = "0-1"
			},
			want: nodeagent.Topology{
				Nodes:    []node{{ID: 0, Cores: []int{0, 1, 4, 5}, Memory: 1024}, {ID: 1, Cores: []int{2, 3, 6}, Memory: 1024}},
				Siblings: [][]int{{0, 4}, {1, 5}, {2, 6}},
			},
			nodes: "2", cores: "4", first: "4 cores, 1024 bytes",
		},
		"four nodes: one without memory, one without cores, one all of whose cores are off line": {
			make: func(s sysfs) {
				for n := range 3 {
					s.core(n, 0, n)
				}
				s["sys/devices/system/cpu/cpu2/online"] = "0"
				s.node(0, "0", 1)
				s.node(1, "1", 0)
				s.node(2, "", 9)
				s.node(3, "2", 1)
			},
			want:  nodeagent.Topology{Nodes: []node{{ID: 0, Cores: []int{0}, Memory: 1024}, {ID: 1, Cores: []int{1}}}},
			nodes: "2", cores: "1", first: "1 cores, 1024 bytes",
		},
		"a kernel without NUMA": {
			make:  func(s sysfs) { s.core(0, 0, 0); s.core(1, 1, 0); s.core(2, 0, 1) },
			want:  nodeagent.Topology{Nodes: []node{{ID: 0, Cores: []int{0, 2}}, {ID: 1, Cores: []int{1}}}},
			nodes: "2", cores: "2", first: "2 cores, 0 bytes",
		},
		"eight nodes, and more than nine by number": {
			make: func(s sysfs) {
				for n := range 8 {
					s.core(n, n/4, n)
					s.node(n*2, fmt.Sprint(n), 1)
				}
			},
			want: nodeagent.Topology{Nodes: []node{
				{ID: 0, Cores: []int{0}, Memory: 1024},
				{ID: 2, Cores: []int{1}, Memory: 1024},
				{ID: 4, Cores: []int{2}, Memory: 1024},
				{ID: 6, Cores: []int{3}, Memory: 1024},
				{ID: 8, Cores: []int{4}, Memory: 1024},
				{ID: 10, Cores: []int{5}, Memory: 1024},
				{ID: 12, Cores: []int{6}, Memory: 1024},
				{ID: 14, Cores: []int{7}, Memory: 1024},
			}},
			nodes: "8", cores: "1", first: "1 cores, 1024 bytes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, files := t.TempDir(), sysfs{}
			c.make(files)
			for name, text := range files {
				path := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			f := machine.Find(root, root)
			if diff := cmp.Diff(c.want, f.Topology); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if a := f.Attributes; a["numa.nodes"] != c.nodes || a["numa.cores"] != c.cores || a["numa.0"] != c.first {
				t.Errorf("%s nodes, %s cores of the largest, the first has %s", a["numa.nodes"], a["numa.cores"], a["numa.0"])
			}
		})
	}
}
