package main

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/nodeagent/loop"
	"github.com/musterhq/muster/schema"
	"github.com/spf13/pflag"
)

// usageFlags say how often is measured, and what is done about it.
type usageFlags struct {
	sampleEvery, diskEvery time.Duration
	evictRAM, evictDisk    int64 // unset: as large as the machine allows
	evictInodes, ballast   int64 // likewise
	overloadAfter          time.Duration
	keep                   nodeagent.Keep
}

// unset is a number of bytes that was not typed: 0 turns something off.
const unset = math.MinInt64

// What is left on a machine before tasks are stopped for it, unless a flag says
// otherwise: the smaller of an amount and a share of what the machine has, so
// that neither a small machine nor a large one wastes much (Kubernetes: 100 MiB,
// and 10% of the disk).
const (
	evictRAM, evictRAMShare   = 100 << 20, 50 // 2%
	evictDisk, evictDiskShare = 1 << 30, 20   // 5%
	evictInodes               = 1 << 16       // or 5%, too: what ext4 has for 1 GiB
	ballast, ballastShare     = 4 << 20, 100  // 1%
)

func (f *usageFlags) register(set *pflag.FlagSet) {
	set.DurationVar(&f.sampleEvery, "sample-every", 5*time.Second, "interval between usage samples of tasks")
	set.DurationVar(&f.diskEvery, "disk-every", 5*time.Second, "minimum interval between scans of a task's directories; 100 times the duration of a scan, if that is more")
	set.Int64Var(&f.evictRAM, "evict-ram-bytes", unset, "evict tasks when less memory than this is available; 0: never (default 100 MiB, at most 2% of the machine's)")
	set.Int64Var(&f.evictDisk, "evict-disk-bytes", unset, "remove data of ended tasks, then evict tasks, when the state directory's file system has less free space than this; 0: never (default 1 GiB, at most 5% of it)")
	set.Int64Var(&f.evictInodes, "evict-inodes", unset, "the same, for free inodes; 0: never (default 65536, at most 5% of its inodes)")
	set.Int64Var(&f.ballast, "ballast-bytes", unset, "disk space reserved for the agent's own writes when the disk is full; 0: none (default 4 MiB, at most 1% of it)")
	set.DurationVar(&f.overloadAfter, "overload-after", 30*time.Second, "ask the master to move tasks away when prod tasks have waited this long for CPU; 0: never")
	set.Int64Var(&f.keep.Bytes, "keep-bytes", nodeagent.DefaultKeepBytes, "disk space for logs and directories of tasks that have ended")
	set.DurationVar(&f.keep.Age, "keep-for", nodeagent.KeepFor, "how long they are kept")
	set.DurationVar(&f.keep.FailedAge, "keep-failed-for", nodeagent.KeepFailedFor, "how long those of failed tasks are kept")
	for _, name := range []string{"evict-ram-bytes", "evict-disk-bytes", "evict-inodes", "ballast-bytes"} {
		set.Lookup(name).DefValue = "0" // what it stands for is in the text
	}
}

// check errs with a usageError for what cannot be.
func (f *usageFlags) check() error {
	const least, most = 100 * time.Millisecond, time.Hour
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"sample-every", f.sampleEvery}, {"disk-every", f.diskEvery}} {
		if d.value < least || d.value > most {
			return usageError{fmt.Errorf("--%s %s: want %s to %s", d.flag, d.value, least, most), "such as 5s"}
		}
	}
	for _, d := range []struct {
		flag  string
		value int64
	}{
		{"overload-after", int64(f.overloadAfter)},
		{"evict-ram-bytes", f.evictRAM},
		{"evict-disk-bytes", f.evictDisk},
		{"evict-inodes", f.evictInodes},
		{"ballast-bytes", f.ballast},
	} {
		if d.value < 0 && d.value != unset {
			return usageError{fmt.Errorf("--%s is negative: want at least 0", d.flag), "0 turns it off"}
		}
	}
	for _, d := range []struct {
		flag  string
		value int64
	}{{"keep-bytes", f.keep.Bytes}, {"keep-for", int64(f.keep.Age)}, {"keep-failed-for", int64(f.keep.FailedAge)}} {
		if d.value <= 0 {
			return usageError{fmt.Errorf("--%s is not positive: logs of what has just ended could not be read", d.flag), ""}
		}
	}
	if f.keep.FailedAge < f.keep.Age {
		return usageError{errors.New("--keep-failed-for is less than --keep-for: failures are kept longest"), ""}
	}
	return nil
}

// configure puts what was typed, or follows from the machine, into the loop's
// configuration.
func (f *usageFlags) configure(cfg *loop.Config, machine *host.Host) error {
	room, err := machine.Machine()
	if err != nil {
		return err
	}
	cfg.Meter, cfg.SampleEvery, cfg.DiskEvery = machine, f.sampleEvery, f.diskEvery
	cfg.Limits = nodeagent.Limits{
		RAMBytes: f.evictRAM, DiskBytes: f.evictDisk, Inodes: f.evictInodes, OverloadAfter: f.overloadAfter, Keep: f.keep,
		Processors: machine.Capacity().Of(schema.CPUMilli),
	}
	if f.evictRAM == unset {
		cfg.Limits.RAMBytes = min(evictRAM, room.RAMTotal/evictRAMShare)
	}
	if f.evictDisk == unset {
		cfg.Limits.DiskBytes = min(evictDisk, room.DiskTotal/evictDiskShare)
	}
	if f.evictInodes == unset {
		cfg.Limits.Inodes = min(evictInodes, room.InodesTotal/evictDiskShare)
	}
	if cfg.BallastBytes = f.ballast; f.ballast == unset {
		cfg.BallastBytes = min(ballast, room.DiskTotal/ballastShare)
	}
	return nil
}
