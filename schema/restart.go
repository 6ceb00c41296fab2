package schema

import "time"

// Restart is the policy by which an agent restarts a task that ended or is
// unhealthy, within one generation. When its attempts are used up the
// generation has failed, and the master decides on another, elsewhere.
type Restart struct {
	// Attempts is how many restarts there are, 0 to MaxAttempts: the failure
	// after the last ends the generation.
	Attempts int `json:"attempts"`
	// WindowSeconds is how long the task must run for the failures before to
	// be forgotten, 1 to 86400.
	WindowSeconds int `json:"windowSeconds"`
	// DelaySeconds is the longest wait before the first restart. It doubles
	// with each further one, up to MaxDelaySeconds. Both are 0 to 3600.
	DelaySeconds    int `json:"delaySeconds"`
	MaxDelaySeconds int `json:"maxDelaySeconds"`
}

// MaxAttempts bounds the restarts of one generation: each keeps a directory on
// its machine, where they are counted.
const MaxAttempts = 100

// DefaultRestart is the policy of a task that has none. The first wait is short
// since most crashes are one of a kind; the cap and the window keep a crash loop
// cheap (Kubernetes waits 10 s to 5 min, Nomad 15 s).
var DefaultRestart = Restart{Attempts: 4, WindowSeconds: 60, DelaySeconds: 1, MaxDelaySeconds: 30}

// RestartPolicy returns the policy of the task.
func (s *TaskSpec) RestartPolicy() Restart {
	if s.Restart == nil {
		return DefaultRestart
	}
	return *s.Restart
}

// Window returns how long a task must run for its failures to be forgotten.
func (r *Restart) Window() time.Duration { return time.Duration(r.WindowSeconds) * time.Second }

// Delay returns the longest wait before the first restart.
func (r *Restart) Delay() time.Duration { return time.Duration(r.DelaySeconds) * time.Second }

// MaxDelay returns the longest wait before any restart.
func (r *Restart) MaxDelay() time.Duration { return time.Duration(r.MaxDelaySeconds) * time.Second }
