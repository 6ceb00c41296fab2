package hollow

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/musterhq/muster/schema"
)

const (
	perRack      = 40
	racksPerZone = 25
	// Of a machine, in percent, kept for the system.
	reserved = 5
)

// sizes are the kinds of machine that there are, and how many of a hundred are each.
var sizes = []struct {
	share, cores int
	ram, disk    int64
}{
	{50, 16, 64 << 30, 480e9},
	{35, 32, 128 << 30, 960e9},
	{15, 64, 256 << 30, 1920e9},
}

// describe returns what a machine says of itself, but for its boot.
func describe(cfg *Config, index int) schema.MachineInfo {
	rng := rand.New(rand.NewPCG(cfg.Seed, uint64(index))) //nolint:gosec // not for secrets
	kind, draw := sizes[0], rng.IntN(100)
	for _, s := range sizes {
		kind = s
		if draw -= s.share; draw < 0 {
			break
		}
	}
	name := fmt.Sprintf("%s-%05d", cfg.Prefix, index+1)
	whole := schema.Resources{CPUMilli: int64(kind.cores) * schema.CoreMilli, RAMBytes: kind.ram, DiskBytes: kind.disk}
	kept := schema.Resources{CPUMilli: whole.CPUMilli * reserved / 100, RAMBytes: whole.RAMBytes * reserved / 100, DiskBytes: whole.DiskBytes * reserved / 100}
	rack := index / perRack
	id := sha256.Sum256(fmt.Appendf(nil, "%s %d", name, cfg.Seed))
	return schema.MachineInfo{
		Name: name, ID: hex.EncodeToString(id[:13]), AgentVersion: cfg.Version,
		Capacity: schema.Resources{CPUMilli: whole.CPUMilli - kept.CPUMilli, RAMBytes: whole.RAMBytes - kept.RAMBytes, DiskBytes: whole.DiskBytes - kept.DiskBytes},
		Reserved: kept,
		Ports:    schema.PortRange{First: 20000, Last: 29999},
		Attributes: map[string]string{
			"hostname": name, "arch": "amd64", "os": "linux", "kernel": "6.12.48",
			"cpu.model": "hollow", "cpu.cores": strconv.Itoa(kind.cores), "cpu.threads": strconv.Itoa(kind.cores),
			"memory.bytes": strconv.FormatInt(kind.ram, 10), "disk.kind": "ssd",
			"isolation.cgroups": "v2", "isolation.namespaces": "true", "isolation.network": "true", "isolation.users": "true", "isolation.user": "true",
			schema.HasContainers: "true", schema.Crun.Attribute(): "true",
			"isolation.seccomp": "true", "isolation.capabilities": "true", schema.HasCapabilityChoice: "true", schema.CapabilityAttribute("NET_BIND_SERVICE"): "true", "isolation.io": "true",
			"rack": fmt.Sprintf("r%04d", rack), "zone": fmt.Sprintf("z%02d", rack/racksPerZone),
		},
		Notes: []string{"a hollow machine: its tasks are simulated"},
	}
}
