package machine

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// topology returns how the cores that are on line hang together. Where the kernel shows no
// NUMA nodes, the sockets are what comes next to them.
func (r files) topology() nodeagent.Topology {
	const cpus, nodes = "sys/devices/system/cpu", "sys/devices/system/node"
	var t nodeagent.Topology
	online := map[int]bool{}
	sockets, physical := map[int][]int{}, map[[2]string][]int{}
	for _, name := range r.list(cpus) {
		core, ok := numbered(name, "cpu")
		if !ok || r.read(cpus, name, "online") == "0" {
			continue
		}
		online[core] = true
		socket := r.read(cpus, name, "topology/physical_package_id")
		if n, err := strconv.Atoi(socket); err == nil && n >= 0 {
			sockets[n] = append(sockets[n], core)
		}
		if id := r.read(cpus, name, "topology/core_id"); id != "" {
			// Numbers of cores are of a die, on a processor that has several.
			key := [2]string{socket + "/" + r.read(cpus, name, "topology/die_id"), id}
			physical[key] = append(physical[key], core)
		}
	}
	for _, name := range r.list(nodes) {
		id, ok := numbered(name, "node")
		list, err := nodeagent.ParseCores(r.read(nodes, name, "cpulist"))
		if !ok || err != nil {
			continue
		}
		cores := slices.DeleteFunc(list, func(core int) bool { return !online[core] })
		if len(cores) > 0 {
			t.Nodes = append(t.Nodes, nodeagent.NUMANode{ID: id, Cores: cores, Memory: r.nodeMemory(id, nodes, name, "meminfo")})
		}
	}
	if len(t.Nodes) == 0 {
		for id, cores := range sockets {
			t.Nodes = append(t.Nodes, nodeagent.NUMANode{ID: id, Cores: cores})
		}
	}
	slices.SortFunc(t.Nodes, func(a, b nodeagent.NUMANode) int { return cmp.Compare(a.ID, b.ID) })
	for i := range t.Nodes {
		slices.Sort(t.Nodes[i].Cores)
	}
	for _, threads := range physical {
		if slices.Sort(threads); len(threads) > 1 {
			t.Siblings = append(t.Siblings, threads)
		}
	}
	slices.SortFunc(t.Siblings, slices.Compare)
	return t
}

// numbered returns the number behind a prefix, as in node0; false if name is something else.
func numbered(name, prefix string) (int, bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n >= 0
}

// nodeMemory returns the bytes of a NUMA node's memory, 0 if it has none.
func (r files) nodeMemory(id int, file ...string) int64 {
	number, ok := strings.CutSuffix(r.field("Node "+strconv.Itoa(id)+" MemTotal", file...), " kB")
	n, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil || n < 0 {
		return 0
	}
	return n << 10
}

// mostNodes is how many NUMA nodes are described one by one.
const mostNodes = 16

// describeNodes sets the attributes of the NUMA nodes: how many there are, the cores of
// the one that has most, and what each has.
func (f *Facts) describeNodes() {
	nodes := f.Topology.Nodes
	if len(nodes) == 0 {
		return
	}
	most := 0
	for i := range nodes {
		most = max(most, len(nodes[i].Cores))
		if len(nodes) <= mostNodes {
			f.Attributes["numa."+strconv.Itoa(nodes[i].ID)] = fmt.Sprintf("%d cores, %d bytes", len(nodes[i].Cores), nodes[i].Memory)
		}
	}
	f.Attributes[schema.AttributeNUMANodes], f.Attributes[schema.AttributeNUMACores] = strconv.Itoa(len(nodes)), strconv.Itoa(most)
}
