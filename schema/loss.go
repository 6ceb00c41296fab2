package schema

import "time"

// LossPolicy says how the tasks of machines that say nothing are rescheduled.
type LossPolicy struct {
	// Domain is the attribute of machines whose values are the failure domains:
	// what fails together. Machines without it are one domain together.
	Domain string `json:"domain"`
	// MaxPercent is the share of the cell's machines, and of a domain's, that may
	// be silent at once: 1 to 100. Above it nothing is rescheduled. One
	// machine always may be.
	MaxPercent int `json:"maxPercent"`
	// TasksPerMinute and Burst are the token bucket of each domain: so many of
	// its tasks are rescheduled in a minute, and so many at once. 1 to MaxTasks.
	TasksPerMinute int `json:"tasksPerMinute"`
	Burst          int `json:"burst"`
}

// The defaults of LossPolicy. A machine holds some dozens of tasks, so that one
// is replaced at once, and a rack of forty in half an hour.
const (
	DefaultLossDomain     = "rack"
	DefaultLossPercent    = 30
	DefaultTasksPerMinute = 60
	DefaultLossBurst      = 100
)

// Loss returns the cell's policy for lost machines.
func (c *Cell) Loss() LossPolicy {
	if c.Lost == nil {
		return LossPolicy{DefaultLossDomain, DefaultLossPercent, DefaultTasksPerMinute, DefaultLossBurst}
	}
	return *c.Lost
}

// Silence says what becomes of a job's tasks while their machine says nothing.
type Silence struct {
	// AfterSeconds is how long a machine may be silent before the task is given
	// to another, MinSilence to MaxSilence seconds; 0 is as long as the cell waits.
	AfterSeconds int `json:"afterSeconds,omitempty"`
	// NeverTwice keeps the task from being given to another while it may still
	// run: until its machine says that it has ended, or is declared gone.
	NeverTwice bool `json:"neverTwice,omitempty"`
}

// The bounds of Silence.AfterSeconds.
const (
	MinSilence = 10
	MaxSilence = 7 * 24 * 3600
)

// After returns how long a machine may be silent before the job's tasks on it are
// rescheduled; usual is what the cell waits.
func (j *Job) After(usual time.Duration) time.Duration {
	if j.Silence == nil || j.Silence.AfterSeconds == 0 {
		return usual
	}
	return time.Duration(j.Silence.AfterSeconds) * time.Second
}

// NeverTwice reports whether the job's tasks must never run twice.
func (j *Job) NeverTwice() bool { return j.Silence != nil && j.Silence.NeverTwice }

// LossRecord is what the store keeps of lost machines beyond their own records,
// so that a new master neither forgets what its predecessor has spent, nor goes
// on where that had stopped.
type LossRecord struct {
	// Full says when each domain's bucket is full again, by the domain's name;
	// "" is that of the machines that have none. One that is absent is full.
	Full map[string]time.Time `json:"full,omitempty"`
	// Held says since when nothing of the cell is rescheduled, and
	// HeldDomains the same of domains; zero, or absent, if it is.
	Held        time.Time            `json:"held,omitzero"`
	HeldDomains map[string]time.Time `json:"heldDomains,omitempty"`
}

// Empty reports whether r says nothing.
func (r *LossRecord) Empty() bool { return len(r.Full)+len(r.HeldDomains) == 0 && r.Held.IsZero() }
