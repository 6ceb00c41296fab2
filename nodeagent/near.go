package nodeagent

import (
	"strings"
	"time"
)

// How a task that is bound to the cores of one NUMA node, and shares them, gets away from
// there. To run on all cores is never worse than to wait for those of one node.
const (
	// LooseFor is for how long a task may run on all cores after it had to wait on those of
	// one node. It is twice as long each time, LooseMost at most.
	LooseFor  = 5 * time.Minute
	LooseMost = 80 * time.Minute
)

// Binding is how a task gets on with the cores of one NUMA node. The zero Binding is that of
// one that has not had to wait there.
type Binding struct {
	// Until is until when it may run on all cores, and For how long that is.
	Until time.Time
	For   time.Duration
}

// Next takes whether the task, as a sample at now says, is bound to a node and suffers
// there (see SuffersAt). Who has not for LooseMost has a clean record.
func (b Binding) Next(now time.Time, suffers bool) Binding {
	switch {
	case suffers:
		b.For = min(max(2*b.For, LooseFor), LooseMost)
		b.Until = now.Add(b.For)
	case b.Until.After(now.Add(LooseMost)): // the clock was set back
		b.Until = now
	case b.For > 0 && now.Sub(b.Until) >= LooseMost:
		return Binding{}
	}
	return b
}

// nodesNote says on which NUMA nodes an incarnation of h runs alone.
func (h *Held) nodesNote(c *Incarnation) string {
	if h.Nodes == "" || !h.Alive() {
		return ""
	}
	what := "it runs on cores of NUMA node "
	if c.Limits.Cores > 0 {
		what = "it has cores of NUMA node "
	}
	if nodes := strings.Split(h.Nodes, ","); len(nodes) > 1 {
		last := len(nodes) - 1
		return strings.TrimSuffix(what, " ") + "s " + strings.Join(nodes[:last], ", ") + " and " + nodes[last]
	}
	return what + h.Nodes
}
