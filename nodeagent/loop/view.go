package loop

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// memory is what the agent must remember of its master.
type memory struct {
	epoch uint64 // the highest that it was welcomed with
	view  *nodeagent.View
}

// viewDocument is memory on disk. A job's data is there once, however many of
// its tasks the machine has.
type viewDocument struct {
	Epoch uint64 `json:"epoch"`
	// Machine is whose it is; "" in one of an earlier release.
	Machine string                        `json:"machine,omitempty"`
	View    *nodeagent.View               `json:"view,omitempty"` // without Job
	Jobs    map[schema.Digest]*schema.Job `json:"jobs,omitempty"`
}

func (d *disk) writeMemory(machine string, m memory) error {
	doc := viewDocument{Epoch: m.epoch, Machine: machine}
	if m.view != nil {
		doc.Jobs = map[schema.Digest]*schema.Job{}
		doc.View = &nodeagent.View{Epoch: m.view.Epoch, Version: m.view.Version, Assignments: make([]schema.Assignment, len(m.view.Assignments))}
		for i, a := range m.view.Assignments {
			doc.Jobs[a.Data] = a.Job
			a.Job = nil
			doc.View.Assignments[i] = a
		}
	}
	if err := d.write(filepath.Join(d.root, viewFile), doc); err != nil {
		return fmt.Errorf("keep the view: %w", err)
	}
	return nil
}

// readMemory reads what was kept for the machine; nothing if it is damaged.
func (d *disk) readMemory(machine string) (memory, error) {
	var doc viewDocument
	name := filepath.Join(d.root, viewFile)
	if ok, _, err := d.read(name, &doc); err != nil || !ok {
		return memory{}, err
	}
	if doc.Machine != "" && doc.Machine != machine {
		return memory{}, fmt.Errorf("%s is of machine %s", name, doc.Machine)
	}
	if doc.View != nil {
		for i := range doc.View.Assignments {
			a := &doc.View.Assignments[i]
			if a.Job = doc.Jobs[a.Data]; a.Job == nil {
				return memory{}, fmt.Errorf("%s lacks the data %s of %s", name, a.Data, a.Task)
			}
		}
	}
	return memory{epoch: doc.Epoch, view: doc.View}, nil
}

// checkView errs when a view holds what must not become a path or a command.
func checkView(cell string, view []schema.Assignment) error {
	for i := range view {
		a := &view[i]
		if _, err := schema.ParseTaskName(a.Task.String()); err != nil {
			return fmt.Errorf("assignment %d: %w", i, err)
		}
		switch {
		case a.Task.Cell != cell:
			return fmt.Errorf("assignment of %s: this machine is of cell %s", a.Task, cell)
		case a.Generation == 0:
			return fmt.Errorf("assignment of %s: no generation", a.Task)
		case a.Job == nil || len(a.Job.Task.Process.Command) == 0 && a.Job.Kind != schema.Allocs:
			return fmt.Errorf("assignment of %s generation %d: no data", a.Task, a.Generation)
		case a.Alloc != nil:
			if _, err := schema.ParseTaskName(a.Alloc.Of(a.Task.JobName).String()); err != nil || a.Alloc.Generation == 0 {
				return fmt.Errorf("assignment of %s generation %d: bad alloc %s", a.Task, a.Generation, a.Alloc)
			}
		}
	}
	return nil
}

// confirm takes note that a master has sent a view. It is of this agent's life:
// the link takes views of its own session only, for which the master's store has
// taken the machine's join, and hands them on once.
func (l *Loop) confirm() {
	if l.life.Confirmed.IsZero() {
		l.life.Confirmed = time.Now()
		l.cfg.Log.Info("a master has confirmed the assignments", "epoch", l.memory.epoch, "after", l.life.Confirmed.Sub(l.life.Began))
	}
}

// withhold says at once which tasks are not started for want of a master's word.
func (l *Loop) withhold(tasks []schema.TaskRef) {
	now := make(map[schema.TaskRef]bool, len(tasks))
	for _, t := range tasks {
		if now[t] = true; !l.withheld[t] {
			l.cfg.Log.Warn("not started yet", "task", t.Task.Short(), "generation", t.Generation, "why", schema.NoteWithheld)
		}
	}
	l.withheld = now
}
