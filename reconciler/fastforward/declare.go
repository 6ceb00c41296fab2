package fastforward

import (
	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/placement/workload"
	"github.com/musterhq/muster/schema"
)

// infoOf returns what a machine of a workload says of itself.
func infoOf(m *placement.Machine) schema.MachineInfo {
	info := schema.MachineInfo{
		Name: m.Name, Boot: "boot-1", Capacity: m.Capacity, Attributes: m.Attributes, Ports: schema.PortRange{First: 20000, Last: 29999},
	}
	for _, d := range m.Devices {
		info.Devices = append(info.Devices, schema.DeviceGroup{Kind: d.Kind, Model: d.Model, Count: d.Count})
	}
	return info
}

// jobOf returns a job of a workload as it is declared.
func jobOf(j *workload.Job) schema.Job {
	moved := false // see the package's comment
	out := schema.Job{
		Name: j.Name.Job, User: j.Name.User, Cell: j.Name.Cell, Kind: schema.Service, Priority: j.Priority, Tasks: j.Tasks, Staying: schema.Staying{Rebalance: &moved},
		Task: schema.TaskSpec{
			Process:   schema.Process{Command: []string{"run"}},
			Resources: schema.TaskResources{Resources: j.Limit},
		},
		Update: schema.UpdatePolicy{MaxParallel: 1},
	}
	if j.Lasts > 0 {
		out.Kind = schema.Batch
	}
	for _, c := range j.Constraints {
		is := schema.Constraint{Attribute: c.Attribute, Operator: schema.Operator(c.Op)} // the words are the same
		if c.Op == placement.OpAtLeast || c.Op == placement.OpBelow {
			is.Value = c.Values[0]
		} else {
			is.Values = c.Values
		}
		out.Constraints = append(out.Constraints, is)
	}
	out.Task.Resources.Devices = devicesOf(j.Devices)
	for _, all := range j.FirstOf {
		out.Task.Resources.FirstOf = append(out.Task.Resources.FirstOf, schema.ResourceAlternative{Devices: devicesOf(all)})
	}
	return out
}

func devicesOf(asks []placement.DeviceAsk) (out map[string]schema.DeviceAsk) {
	for _, d := range asks {
		if out == nil {
			out = map[string]schema.DeviceAsk{}
		}
		out[d.Kind] = schema.DeviceAsk{Count: d.Count, Milli: d.Milli, Models: d.Models}
	}
	return out
}

// packageOf returns a package that declares a job.
func packageOf(j *workload.Job) schema.CompiledPackage {
	p := &schema.Package{Dir: "jobs/" + j.Name.User + "/" + j.Name.Job, Origins: map[schema.ObjectKey]schema.Position{}}
	job := jobOf(j)
	p.Objects.Jobs = []schema.Job{job}
	p.Origins[schema.ObjectKey{Kind: schema.KindJob, Name: job.ID().String()}] = schema.Position{Path: p.Dir + "/job.cue", Line: 1, Column: 1}
	return schema.CompiledPackage{Dir: p.Dir, Package: p, Digest: schema.DigestOf(p)}
}

// cellPackage returns a package that declares the cell: one without quota.
func cellPackage(name string) schema.CompiledPackage {
	p := &schema.Package{Dir: "cells", Origins: map[schema.ObjectKey]schema.Position{}}
	p.Objects.Cells = []schema.Cell{{Name: name, Quota: "off", MaxTasks: schema.MaxCellTasks}}
	return schema.CompiledPackage{Dir: p.Dir, Package: p, Digest: schema.DigestOf(p)}
}
