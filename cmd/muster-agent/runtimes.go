package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/nodeagent/loop"
	"github.com/musterhq/muster/nodeagent/machine"
	"github.com/musterhq/muster/nodeagent/runtime"
	"github.com/musterhq/muster/nodeagent/secrets"
	"github.com/musterhq/muster/schema"
)

// runtimes are the machine and the ways of running tasks on it, in the loop's words.
// Which of them runs an incarnation is said here and nowhere else: by its job as it
// starts, by what it has left in its directory as it is adopted. There is one, of
// processes, which makes allocs too.
type runtimes struct {
	*host.Host
	processes *runtime.Runtime
	secrets   *secrets.Machine // nil: the machine can hold none
	notes     []string         // on that
}

// openRuntimes makes them.
func openRuntimes(of host.Config, processes runtime.Config) (*runtimes, error) {
	r := &runtimes{}
	var err error
	if r.Host, err = host.New(of); err != nil {
		return nil, err
	}
	processes.Host = r.Host
	r.openSecrets(of.Dir)
	processes.Secrets = r.secrets
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
		Boot: r.Boot(), Capacity: r.Capacity(), Devices: facts.Devices, Attributes: attributes, Recipient: r.recipient(),
		Notes: slices.Concat(r.Lacks().Notes(), r.processes.Notes(), r.notes, facts.Notes),
	}
}

// openSecrets finds what the machine has for the secrets of tasks.
func (r *runtimes) openSecrets(dir string) {
	m, err := secrets.Open(dir)
	if err != nil {
		r.notes = append(r.notes, fmt.Sprintf("no secrets: %v: tasks that need any do not run here", err))
		return
	}
	r.secrets = m
	if note := secrets.Swapped(); note != "" {
		r.notes = append(r.notes, note)
	}
}

// recipient is whom secrets for this machine are sealed for; "" if it can hold none.
func (r *runtimes) recipient() string {
	if r.secrets == nil {
		return ""
	}
	return r.secrets.Recipient()
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
func (r *runtimes) Close() error {
	errs := []error{r.processes.Close(), r.Host.Close()}
	if r.secrets != nil {
		errs = append(errs, r.secrets.Close())
	}
	return errors.Join(errs...)
}
