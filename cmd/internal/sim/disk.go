package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// disk is the state directory of one machine: what outlives its agent, and its
// boots but for what was not synced.
type disk struct {
	epoch       uint64 // with view, what the agent remembers of its master
	view        *schema.View
	generations []*generation

	writes int                  // so far
	fates  map[int]writeOutcome // of writes to come
	full   time.Time            // until then nothing can be written
	// unsynced undoes, by file, what a power cut would.
	unsynced map[string]func()
	// refused are the files of which the last write met an error.
	refused     map[string]bool
	refusedView *schema.View // the last that was, nil if it is written
}

// generation is the directory of a generation of a task.
type generation struct {
	assignment schema.Assignment
	end        *schema.Cause
	runs       []*run // by number, those that were not pruned
}

// run is the directory of an incarnation, and its process.
type run struct {
	of          *generation
	number      int
	boot        string
	pid         int
	started     time.Time // by the machine's clock
	stop        *schema.Cause
	exit        *schema.Exit
	endedItself bool                 // it ended before it was signalled
	unseen      bool                 // its keeper was killed
	halted      bool                 // it ended with its agent
	probe       nodeagent.Probe      // as it was last written down
	limits      nodeagent.TaskLimits // in force
	step        int                  // of the task's Before, from 1; 0 is the task itself
	attempt     int                  // at which that is
	given       nodeagent.Given      // when it started
	renewed     nodeagent.Given      // after that, as it was last written down; nil: never
	secrets     map[string]string    // versions of those that it has, by their names

	// What the world knows of the process.
	alive  bool
	began  time.Time
	ended  time.Time
	termed time.Time // its first SIGTERM; zero: none
	due    time.Time // when it ends by itself; zero: never
	ends   schema.Exit
	asked  time.Time // its last health check
	// checked is what asker, an agent, knows of its health by its checks.
	checked nodeagent.Probe
	asker   *nodeagent.Agent
	failed  int // of these in a row
}

// writeOutcome is what becomes of one durable write of an agent.
type writeOutcome int

// The fates. A write is one of a new file, a sync, a rename over the old one and
// a sync of the directory: it is whole or not there.
const (
	taken    writeOutcome = iota
	refused               // an error, and nothing is written
	unsynced              // an error, and it is there unless the power goes before it is written again
	before                // the agent is killed, and nothing is written
	after                 // the agent is killed, and it is written
	outage                // the machine restarts, and nothing is written
	late                  // the machine restarts, and it is written
	fates                 // how many there are
)

var (
	errDisk error = &nodeagent.DiskError{Err: errors.New("input/output error"), Trouble: nodeagent.DiskReadOnly}
	errDied       = errors.New("the agent is dead")
)

// write makes a durable change of a machine's disk, or not. It returns errDied
// when that was the last that the agent did.
func (w *World) write(m *machine, file string, change, undo func()) error {
	d := &m.disk
	d.writes++
	f := d.fates[d.writes]
	delete(d.fates, d.writes)
	if f == taken && w.now.Before(d.full) {
		f = refused
	}
	if f != taken {
		w.note("%s: the write of %s meets fate %d", m.name, file, f)
	}
	d.refused[file] = f == refused || f == unsynced
	switch f {
	case refused:
		return errDisk
	case unsynced:
		change()
		d.unsynced[file] = undo
		return errDisk
	case before, after:
		if f == after {
			change()
		}
		w.KillAgent(m.name)
		return errDied
	case outage, late:
		if f == late {
			change()
		}
		w.Reboot(m.name)
		return errDied
	}
	change()
	delete(d.unsynced, file)
	return nil
}

// lose undoes what was not synced.
func (d *disk) lose() {
	for _, file := range sortedKeys(d.unsynced) {
		d.unsynced[file]()
	}
	clear(d.unsynced)
}

// find returns the directory of a generation, nil if there is none.
func (d *disk) find(task schema.TaskName, number uint64) *generation {
	for _, g := range d.generations {
		if g.assignment.Generation == number && g.assignment.Task == task {
			return g
		}
	}
	return nil
}

// refusesEnd reports whether d refuses the end of g, or the assignment that an agent
// has to write before it: one may be there that has not been synced.
func (d *disk) refusesEnd(g *generation) bool {
	return d.refused[file(g.ref(), "end.json")] || d.refused[file(g.ref(), "assignment.json")]
}

func (d *disk) remove(g *generation) {
	d.generations = slices.DeleteFunc(d.generations, func(x *generation) bool { return x == g })
}

func (g *generation) ref() schema.TaskRef {
	return schema.TaskRef{Task: g.assignment.Task, Generation: g.assignment.Generation}
}

// held returns what an agent that starts finds of g.
func (g *generation) held() nodeagent.Held {
	h := nodeagent.Held{Assignment: g.assignment, End: g.end}
	for _, r := range g.runs {
		h.Incarnations = append(h.Incarnations, r.incarnation())
	}
	return h
}

func (r *run) incarnation() nodeagent.Incarnation {
	return nodeagent.Incarnation{
		Number: r.number, Process: r.state(), Stop: r.stop, Probe: nodeagent.Known(r.probe.State, r.probe.Message),
		Step: r.step, Attempt: r.attempt, Given: r.givenNow(), Renewed: r.renewed != nil,
	}
}

// state is what the machine says of r.
func (r *run) state() nodeagent.Process {
	return nodeagent.Process{
		Boot: r.boot, PID: r.pid, StartedAt: r.started, Exit: r.exit, EndedItself: r.endedItself, Unseen: r.unseen, Limited: true, Given: r.given,
	}
}

// givenNow is what an agent that starts takes for what r has.
func (r *run) givenNow() nodeagent.Given {
	if r.renewed != nil {
		return r.renewed
	}
	return r.given
}
