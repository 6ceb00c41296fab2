package linkpb

import (
	"fmt"

	"github.com/musterhq/muster/schema"
)

// EncodeUsage returns the message of a machine's usage.
func EncodeUsage(u *schema.MachineUsage) *MachineUsage {
	m := &MachineUsage{
		At: encodeTime(u.At), CpuMilli: u.CPUMilli, RamTotal: u.RAMTotal, RamAvailable: u.RAMAvailable,
		DiskTotal: u.DiskTotal, DiskFree: u.DiskFree, InodesTotal: u.InodesTotal, InodesFree: u.InodesFree,
		Tasks: make([]*TaskUsage, len(u.Tasks)),
	}
	for i := range u.Tasks {
		t := &u.Tasks[i]
		m.Tasks[i] = &TaskUsage{
			Task: t.Task.String(), Generation: t.Generation, Incarnation: int32(t.Incarnation), At: encodeTime(t.At),
			CpuMilli: t.CPUMilli, RamBytes: t.RAMBytes, CacheBytes: t.CacheBytes,
			DiskBytes: t.DiskBytes, DiskInodes: t.DiskInodes, DiskAt: encodeTime(t.DiskAt), DiskNote: t.DiskNote, Processes: t.Processes,
			ThrottledMilli: t.ThrottledMilli, DelayMilli: t.DelayMilli, OomKills: t.OOMKills, Note: t.Note,
		}
	}
	return m
}

// DecodeUsage returns the usage of a message, as that of the named machine. It
// errs for what is no task or no time, and for amounts below 0.
func DecodeUsage(machine string, m *MachineUsage) (schema.MachineUsage, error) {
	u := schema.MachineUsage{
		Machine: machine, CPUMilli: m.GetCpuMilli(), RAMTotal: m.GetRamTotal(), RAMAvailable: m.GetRamAvailable(),
		DiskTotal: m.GetDiskTotal(), DiskFree: m.GetDiskFree(), InodesTotal: m.GetInodesTotal(), InodesFree: m.GetInodesFree(),
		Tasks: make([]schema.TaskUsage, 0, len(m.GetTasks())),
	}
	var err error
	if u.At, err = decodeTime(m.GetAt()); err != nil {
		return u, fmt.Errorf("usage of machine %s: %w", machine, err)
	}
	if least := min(u.CPUMilli, u.RAMTotal, u.RAMAvailable, u.DiskTotal, u.DiskFree, u.InodesTotal, u.InodesFree); least < 0 {
		return u, fmt.Errorf("usage of machine %s: amount %d: want at least 0", machine, least)
	}
	for _, t := range m.GetTasks() {
		task, err := decodeTaskUsage(t)
		if err != nil {
			return u, fmt.Errorf("usage of machine %s: %w", machine, err)
		}
		u.Tasks = append(u.Tasks, task)
	}
	return u, nil
}

func decodeTaskUsage(m *TaskUsage) (schema.TaskUsage, error) {
	task, err := schema.ParseTaskName(m.GetTask())
	if err != nil {
		return schema.TaskUsage{}, err
	}
	t := schema.TaskUsage{
		Task: task, Generation: m.GetGeneration(), Incarnation: int(m.GetIncarnation()),
		Usage: schema.Usage{
			CPUMilli: m.GetCpuMilli(), RAMBytes: m.GetRamBytes(), CacheBytes: m.GetCacheBytes(),
			DiskBytes: m.GetDiskBytes(), DiskInodes: m.GetDiskInodes(), DiskNote: Text(m.GetDiskNote()), Processes: m.GetProcesses(),
			ThrottledMilli: m.GetThrottledMilli(), DelayMilli: m.GetDelayMilli(), OOMKills: m.GetOomKills(), Note: Text(m.GetNote()),
		},
	}
	least := min(t.CPUMilli, t.RAMBytes, t.CacheBytes, t.DiskBytes, t.DiskInodes, t.Processes, t.ThrottledMilli, t.DelayMilli, t.OOMKills)
	if least < 0 {
		return t, fmt.Errorf("task %s: amount %d: want at least 0", task, least)
	}
	var errs [2]error
	t.At, errs[0] = decodeTime(m.GetAt())
	t.DiskAt, errs[1] = decodeTime(m.GetDiskAt())
	for _, err := range errs {
		if err != nil {
			return t, fmt.Errorf("task %s: %w", task, err)
		}
	}
	return t, nil
}

func encodeOverload(o *schema.Overload) *Overload {
	if o == nil {
		return nil
	}
	m := &Overload{Since: encodeTime(o.Since), Message: o.Message}
	if o.Suffers != (schema.TaskName{}) {
		m.Suffers = o.Suffers.String()
	}
	for _, r := range o.Relief {
		m.Relief = append(m.Relief, &TaskRef{Task: r.Task.String(), Generation: r.Generation})
	}
	return m
}

func decodeOverload(m *Overload) (*schema.Overload, error) {
	if m == nil {
		return nil, nil
	}
	o := &schema.Overload{Message: Text(m.GetMessage())}
	var err error
	if o.Since, err = decodeTime(m.GetSince()); err != nil {
		return nil, fmt.Errorf("overload: since: %w", err)
	}
	if s := m.GetSuffers(); s != "" {
		if o.Suffers, err = schema.ParseTaskName(s); err != nil {
			return nil, fmt.Errorf("overload: %w", err)
		}
	}
	for _, r := range m.GetRelief() {
		task, err := schema.ParseTaskName(r.GetTask())
		if err != nil {
			return nil, fmt.Errorf("overload: %w", err)
		}
		o.Relief = append(o.Relief, schema.TaskRef{Task: task, Generation: r.GetGeneration()})
	}
	return o, nil
}
