package workload

import (
	"fmt"
	"hash/fnv"
	"math"
	"time"

	"github.com/musterhq/muster/schema"
)

const (
	// ebb is by how much less than its Usage a task uses of CPU at the least, as a share.
	ebb = 0.4
	// shortestWave and longestWave are within what time it goes from one peak to the next.
	shortestWave, longestWave = time.Hour, 6 * time.Hour
	// warm is how long a task takes until it has all of the memory that it uses; it begins with
	// the share coldRAM.
	warm, coldRAM = time.Hour, 0.6
)

// UsageAt is what a task of the job uses once it has run for some time: CPU in waves of its own, of
// an hour to six, between 60% of Usage and all of it; memory grows from 60% to all within an hour;
// all the time all where the job is Steady. The same arguments give the same.
func (j *Job) UsageAt(seed uint64, index int, ran time.Duration) schema.Resources {
	if j.Steady {
		return j.Usage
	}
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s %d", seed, j.Name, index)
	x := h.Sum64()
	phase, period := float64(x>>40)/(1<<24), float64(shortestWave)+float64(longestWave-shortestWave)*float64(x<<24>>40)/(1<<24)
	cpu := 1 - ebb*(1+math.Sin(2*math.Pi*(phase+float64(ran)/period)))/2
	ram := min(1, coldRAM+(1-coldRAM)*float64(ran)/float64(warm))
	return schema.Resources{CPUMilli: int64(float64(j.Usage.CPUMilli) * cpu), RAMBytes: int64(float64(j.Usage.RAMBytes) * ram), DiskBytes: j.Usage.DiskBytes}
}

// TypicalUsage is a Usage for a task of which only priority and limit are known: what is drawn about
// for the classes, as a share of the limit.
func TypicalUsage(p schema.Priority, limit schema.Resources) schema.Resources {
	k := &kinds[0]
	for i := range kinds {
		if kinds[i].priorities[0].Band() == p.Band() {
			k = &kinds[i]
		}
	}
	return schema.Resources{CPUMilli: int64(float64(limit.CPUMilli) * k.usesCPU), RAMBytes: int64(float64(limit.RAMBytes) * k.usesRAM), DiskBytes: limit.DiskBytes}
}
