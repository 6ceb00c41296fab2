package schema

import "time"

// Health says how the agent finds out whether a running task does its work:
// exactly one of HTTP, TCP and Exec, and how often it is checked.
type Health struct {
	HTTP *HTTPCheck `json:"http,omitempty"`
	TCP  *TCPCheck  `json:"tcp,omitempty"`
	Exec *ExecCheck `json:"exec,omitempty"`
	// StartSeconds is how long after its start a task may fail checks without
	// consequence, until it has passed one. 0 to 3600.
	StartSeconds int `json:"startSeconds"`
	// IntervalSeconds is the time from the start of one check to that of the
	// next, 1 to 3600. A task that has not answered yet is checked more often.
	IntervalSeconds int `json:"intervalSeconds"`
	// TimeoutSeconds is how long one check may take, 1 to 3600.
	TimeoutSeconds int `json:"timeoutSeconds"`
	// Failures in a row make a task unhealthy, Successes in a row make it
	// healthy (again); 1 to 100.
	Failures  int `json:"failures"`
	Successes int `json:"successes"`
}

// The timings of a health check that does not give its own. Data that was
// stored before there were any has none.
const (
	DefaultStartSeconds    = 30
	DefaultIntervalSeconds = 1
	// DefaultExecSeconds is the DefaultIntervalSeconds of a command, which costs the
	// machine more than a request: that of the probes of Kubernetes.
	DefaultExecSeconds    = 10
	DefaultTimeoutSeconds = 1
	DefaultFailures       = 3
	DefaultSuccesses      = 1
)

// Timed returns h with timings: its own, or the defaults if it has none at all.
func (h *Health) Timed() Health {
	t := *h
	if t.IntervalSeconds == 0 {
		t.StartSeconds, t.IntervalSeconds, t.TimeoutSeconds = DefaultStartSeconds, DefaultIntervalSeconds, DefaultTimeoutSeconds
		t.Failures, t.Successes = DefaultFailures, DefaultSuccesses
		if t.Exec != nil {
			t.IntervalSeconds = DefaultExecSeconds
		}
	}
	return t
}

// firstCheck is the time from a task's start to its first check. The time
// between two doubles up to the interval until one has passed, so that a quick
// task is known to be healthy quickly.
const firstCheck = 50 * time.Millisecond

// Wait returns the time from the start of a task of which so many checks were made, and none
// passed, or from that of the last of them, to that of the next. Once one has passed it is
// Interval.
func (h *Health) Wait(asked int) time.Duration {
	// 2^16 of it are more than the longest interval.
	return min(firstCheck<<min(asked, 16), h.Interval())
}

// HealthyAfter returns the least time from a task's start until it is healthy: that of a
// task which passes every check at once. h is with timings.
func (h *Health) HealthyAfter() time.Duration {
	return h.Wait(0) + time.Duration(h.Successes-1)*h.Interval()
}

// UnhealthyAfter returns the time from a task's start until it is unhealthy if it fails every
// check at once. h is with timings.
func (h *Health) UnhealthyAfter() time.Duration {
	age, asked := h.Wait(0), 0
	for failed := 0; ; {
		if age >= h.Start() {
			failed++
		}
		if failed >= h.Failures {
			return age
		}
		asked++
		age += h.Wait(asked)
	}
}

// Start returns how long after a start failures do not count.
func (h *Health) Start() time.Duration { return time.Duration(h.StartSeconds) * time.Second }

// Interval returns the time from one check to the next.
func (h *Health) Interval() time.Duration { return time.Duration(h.IntervalSeconds) * time.Second }

// Timeout returns how long one check may take.
func (h *Health) Timeout() time.Duration { return time.Duration(h.TimeoutSeconds) * time.Second }

// HTTPCheck passes when a request is answered with a status from 200 to 399.
type HTTPCheck struct {
	Port string `json:"port"` // a name from resources.ports
	Path string `json:"path"` // starts with /
	// Method is GET or HEAD; "" is GET.
	Method string `json:"method,omitempty"`
	// Headers are sent with the request; Host is the requested name.
	Headers map[string]string `json:"headers,omitempty"`
}

// TCPCheck passes when a connection is accepted.
type TCPCheck struct {
	Port string `json:"port"` // a name from resources.ports
}

// ExecCheck passes when a command, run as and beside the task, exits with 0.
type ExecCheck struct {
	// Command is as that of Process, $(NAME) included.
	Command []string `json:"command"`
}

// Port returns the name of the port that is checked, "" for none.
func (h *Health) Port() string {
	switch {
	case h.HTTP != nil:
		return h.HTTP.Port
	case h.TCP != nil:
		return h.TCP.Port
	}
	return ""
}
