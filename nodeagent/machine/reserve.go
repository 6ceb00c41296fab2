package machine

import (
	"fmt"

	"github.com/musterhq/muster/schema"
)

// What is kept for the system when nobody says how much: the kernel's daemons,
// the agent (under 60 MiB), and keepers (under 1 MiB each of their own). The
// shares are of the order of Kubernetes' kube-reserved as GKE sets it, but
// smaller, since a kubelet with a container runtime needs several times as much.
const (
	cpuShare  = 100 // one hundredth of the processors,
	leastCPU  = 50  // thousandths of a core at least
	ramShare  = 20  // one twentieth of the memory,
	leastRAM  = 128 << 20
	mostRAM   = 4 << 30
	diskShare = 20 // one twentieth of the disk,
	mostDisk  = 10 << 30
	mostOfAll = 4 // and never more than a quarter of anything
)

// Reserve returns what of a machine is kept for the system by default.
func Reserve(all schema.Resources) schema.Resources {
	within := func(n, least, most, all int64) int64 { return min(max(n, least), most, all/mostOfAll) }
	return schema.Resources{
		CPUMilli:  within(all.CPUMilli/cpuShare, leastCPU, all.CPUMilli, all.CPUMilli),
		RAMBytes:  within(all.RAMBytes/ramShare, leastRAM, mostRAM, all.RAMBytes),
		DiskBytes: within(all.DiskBytes/diskShare, 0, mostDisk, all.DiskBytes),
	}
}

// Less takes a reserve off what there is. It errs when nothing would be left.
func Less(all, reserve schema.Resources) (schema.Resources, error) {
	rest := all.Sub(reserve)
	for _, d := range schema.Dimensions() {
		if all.Of(d) > 0 && rest.Of(d) <= 0 {
			return rest, fmt.Errorf("%d %s are kept for the system, and the machine has %d: nothing is left for tasks", reserve.Of(d), d, all.Of(d))
		}
	}
	return rest, nil
}
