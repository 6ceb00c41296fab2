package main

import (
	"context"
	"errors"
	"maps"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/nodeagent/loop"
	"github.com/musterhq/muster/nodeagent/machine"
	"github.com/musterhq/muster/nodeagent/runtime"
	"github.com/musterhq/muster/schema"
)

// runtimes are the machine and the ways of running tasks on it, in the loop's words.
// Which of them runs an incarnation is said here and nowhere else: by its job as it
// starts, by what it has left in its directory as it is adopted. There is one, of
// processes, which makes allocs too.
type runtimes struct {
	*host.Host
	processes *runtime.Runtime
}

// openRuntimes makes them.
func openRuntimes(of host.Config, processes runtime.Config) (*runtimes, error) {
	r := &runtimes{}
	var err error
	if r.Host, err = host.New(of); err != nil {
		return nil, err
	}
	processes.Host = r.Host
	if r.processes, err = runtime.New(processes); err != nil {
		return nil, errors.Join(err, r.Host.Close())
	}
	return r, nil
}

// machine returns what is known of the machine, with what facts say beside it.
func (r *runtimes) machine(facts *machine.Facts) schema.MachineInfo {
	attributes := maps.Clone(facts.Attributes)
	maps.Copy(attributes, r.processes.Attributes())
	return schema.MachineInfo{
		Boot: r.Boot(), Capacity: r.Capacity(), Devices: facts.Devices, Attributes: attributes,
		Notes: append(append(r.Lacks().Notes(), r.processes.Notes()...), facts.Notes...),
	}
}

// Start starts the task of a, or makes its alloc.
func (r *runtimes) Start(ctx context.Context, dir string, a *schema.Assignment) (loop.Process, error) {
	process, err := r.processes.Start(ctx, dir, a)
	if err != nil {
		if errors.Is(err, runtime.ErrCommand) {
			err = nodeagent.TaskError(err)
		}
		return nil, err // not a nil *Process in an interface
	}
	return process, nil
}

// Adopt finds what was started in dir.
func (r *runtimes) Adopt(ctx context.Context, dir string) (loop.Process, error) {
	process, err := r.processes.Adopt(ctx, dir)
	if err != nil {
		return nil, err
	}
	return process, nil
}

// Remains lists what the tasks of the generation in dir have made for themselves.
func (r *runtimes) Remains(dir string) []string { return host.Remains(dir) }

// Running lists the directories of living incarnations below tasks.
func (r *runtimes) Running(tasks string) ([]string, error) { return r.processes.Running(tasks) }

// Sweep kills what runs for tasks beside the incarnations whose directories are held.
func (r *runtimes) Sweep(ctx context.Context, tasks string, held []string) ([]string, error) {
	return r.processes.Sweep(ctx, tasks, held)
}

// Close lets go of all tasks, which run on, and removes what was made to hold them if
// there are none.
func (r *runtimes) Close() error { return errors.Join(r.processes.Close(), r.Host.Close()) }
