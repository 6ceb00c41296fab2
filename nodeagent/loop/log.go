package loop

import (
	"errors"
	"log/slog"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// journal logs and counts the agent's events.
type journal struct {
	log     *slog.Logger
	metrics *metrics
}

func (j journal) entry(e *nodeagent.LogEntry, a *nodeagent.Agent) {
	log := j.log
	if e.Task != (schema.TaskName{}) {
		log = log.With("task", e.Task.Short(), "generation", e.Generation)
	}
	switch e.Kind {
	case nodeagent.LogConfirmed:
		log.Info("a master has confirmed the assignments", "epoch", a.Memory().Epoch, "after", e.After)
	case nodeagent.LogWithheld:
		log.Warn("not started yet", "why", schema.NoteWithheld)
	case nodeagent.LogConditions:
		j.conditions(a.Conditions())
	case nodeagent.LogHealth:
		log = log.With("incarnation", e.Incarnation)
		switch e.Probe.State {
		case schema.Unhealthy:
			j.metrics.unhealthy.Inc()
			log.Warn("unhealthy", "saw", e.Probe.Message, "failures", e.Probe.Failed)
		case schema.Healthy:
			log.Info("healthy")
		case schema.HealthUnknown:
			log.Warn("its health is unknown", "saw", e.Probe.Message)
		}
	case nodeagent.LogOOM:
		j.metrics.oomKills.Add(float64(e.N))
		log.Warn("the kernel has killed processes of a task that was out of memory", "incarnation", e.Incarnation, "processes", e.N)
	case nodeagent.LogCPUBound:
		log.Info("CPU of batch tasks", "bound", e.N)
	case nodeagent.LogIOBound:
		log.Info("disk of tasks that give way", "bound", e.N)
	}
}

// conditions logs what is wrong with the machine.
func (j journal) conditions(list []schema.Condition) {
	if len(list) == 0 {
		j.log.Info("the machine has no more conditions")
	}
	for _, c := range list {
		j.log.Warn("the machine has a condition", "condition", string(c.Kind), "message", c.Message)
	}
}

// stored logs how the write of a file went, where that is of interest.
func (j journal) stored(w nodeagent.Write, file string, err error) {
	gone := (*nodeagent.DiskError)(nil)
	switch {
	case w.Again && errors.As(err, &gone) && gone.Trouble == nodeagent.Vanished: // with its task
	case err != nil && w.Kind == nodeagent.HealthDocument: // the next agent asks again
		j.log.Warn("cannot keep what is known of a task's health", "task", w.Task.Short(), "err", err)
	case err != nil:
		j.metrics.errors.Inc()
		if !w.Again {
			j.log.Error("cannot write a file; it is in force from memory, and the write is retried", "file", file, "err", err)
		}
	case w.Again:
		j.log.Info("written after failed attempts", "file", file)
	}
}
