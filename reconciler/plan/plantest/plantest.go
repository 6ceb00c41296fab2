package plantest

import (
	"fmt"

	"github.com/musterhq/muster/schema"
)

// Machine is one with the given number of cores and GiB of memory.
func Machine(name string, cores, gib int64) schema.MachineInfo {
	return schema.MachineInfo{
		Name: name, Boot: "boot-1", Ports: schema.PortRange{First: 20000, Last: 20099},
		Capacity:   schema.Resources{CPUMilli: cores * 1000, RAMBytes: gib << 30, DiskBytes: 100 << 30},
		Attributes: map[string]string{"rack": "r" + name[len(name)-1:]},
	}
}

// Job is one of user search in cell c, with so many tasks that take a core each, of some version.
func Job(name string, priority schema.Priority, tasks int, version string) schema.Job {
	return schema.Job{
		Name: name, User: "search", Cell: "c", Kind: schema.Service, Priority: priority, Tasks: tasks,
		Task: schema.TaskSpec{
			Process:   schema.Process{Command: []string{"serve"}},
			Env:       map[string]string{"VERSION": version},
			Resources: schema.TaskResources{Resources: schema.Resources{CPUMilli: 1000, RAMBytes: 1 << 30, DiskBytes: 1 << 30}},
		},
		Update: schema.UpdatePolicy{MaxParallel: 1},
	}
}

// Commit is the n-th commit, which declares jobs in a cell that asks for no quota.
func Commit(n int, jobs ...schema.Job) schema.Compiled {
	p := &schema.Package{Dir: "cells", Origins: map[schema.ObjectKey]schema.Position{}}
	p.Objects.Cells = []schema.Cell{{Name: "c", Quota: "off"}}
	p.Objects.Jobs = jobs
	p.Objects.Sort()
	for i := range jobs {
		p.Origins[schema.ObjectKey{Kind: schema.KindJob, Name: jobs[i].ID().String()}] = schema.Position{Path: "cells/x.cue", Line: i + 1, Column: 1}
	}
	return schema.Compiled{
		Commit: fmt.Sprintf("%040d", n), Trailers: schema.Trailers{AllowPrune: schema.MaxTasks},
		Packages: []schema.CompiledPackage{{Dir: p.Dir, Package: p, Digest: schema.DigestOf(p)}},
	}
}
