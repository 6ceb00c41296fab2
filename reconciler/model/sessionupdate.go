package model

import "github.com/musterhq/muster/schema"

// SessionUpdate is what a link shard sends of one session to the master that leads: what
// has changed since the update before.
type SessionUpdate struct {
	Machine string
	Epoch   uint64
	// Resume is set when the session began before this master led, or before the shard
	// was attached to it; nil for one that this master knows.
	Resume *schema.Connection
	// Report is the machine's last report, if the master does not have it yet. Reported
	// says that the machine has reported since the last update; without a Report, the
	// same as before.
	Report   *schema.Report
	Reported bool
	Usage    *schema.MachineUsage
	Content  *schema.ContentChange // of what this master has of the session; nil: none
	Left     bool                  // the session has ended
}
