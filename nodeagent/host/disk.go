package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/cgroups/v3/cgroup1"
	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
	"golang.org/x/sys/unix"
)

// The weights of tasks on disks whose scheduler has any, 1 to 1000.
const (
	diskWeight  = 100
	batchWeight = diskWeight * nodeagent.BatchWeightPercent / 100
)

// requestBytes is how much one request to the disk is counted for: a bound on
// bytes is one on requests too, since small ones cost as much.
const requestBytes = 32 << 10

// diskOf returns the numbers of the disk that holds dir, as cgroups name it; "" if
// it is on none.
func diskOf(dir string) string {
	var s unix.Stat_t
	if unix.Stat(dir, &s) != nil {
		return ""
	}
	real, err := filepath.EvalSymlinks(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(s.Dev), unix.Minor(s.Dev)))
	if err != nil {
		return ""
	}
	if _, err := os.Stat(filepath.Join(real, "partition")); err == nil {
		real = filepath.Dir(real)
	}
	b, _ := os.ReadFile(filepath.Join(real, "dev")) // nothing read: no disk
	return strings.TrimSpace(string(b))
}

// weightOf returns the weight of a task on disks.
func weightOf(l nodeagent.TaskLimits) string {
	if l.Class == schema.ClassBatch {
		return fmt.Sprint(batchWeight)
	}
	return fmt.Sprint(diskWeight)
}

// put writes text to a file of a cgroup, if there is such a file.
func put(dir, name, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

func (g *legacy) share(name, disk string, l nodeagent.TaskLimits) error {
	parent := g.parentOf(cgroup1.Blkio)
	if parent == "" {
		return nil
	}
	dir := filepath.Join(parent, name)
	_ = put(dir, "blkio.bfq.weight", weightOf(l)) // without weights, nothing that is promised is missing
	if disk == "" {
		return nil
	}
	var errs []error
	requests := int64(0) // 0 is no bound, of these as of bytes
	if l.IOBytes > 0 {
		requests = max(1, l.IOBytes/requestBytes)
	}
	for _, way := range []string{"read", "write"} {
		errs = append(errs,
			put(dir, "blkio.throttle."+way+"_bps_device", fmt.Sprint(disk, " ", l.IOBytes)),
			put(dir, "blkio.throttle."+way+"_iops_device", fmt.Sprint(disk, " ", requests)))
	}
	return errors.Join(errs...)
}

func (g *unified) share(name, disk string, l nodeagent.TaskLimits) error {
	if !g.has[ioController] {
		return nil
	}
	dir := g.dir(name, "")
	for _, file := range []string{"io.weight", "io.bfq.weight"} {
		_ = put(dir, file, weightOf(l)) // as with v1
	}
	if disk == "" {
		return nil
	}
	bound := disk + " rbps=max wbps=max riops=max wiops=max"
	if l.IOBytes > 0 {
		requests := max(1, l.IOBytes/requestBytes)
		bound = fmt.Sprintf("%s rbps=%d wbps=%d riops=%d wiops=%d", disk, l.IOBytes, l.IOBytes, requests, requests)
	}
	return put(dir, "io.max", bound)
}
