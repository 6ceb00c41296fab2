package model

import "github.com/musterhq/muster/schema"

// Word is what a link shard has of one session for the master that leads: what is new
// since its last word of it.
type Word struct {
	Machine string
	Epoch   uint64
	// Resume says that the session was there before this master led, or before the
	// shard was attached to it; nil for one that this master knows.
	Resume *schema.Connection
	// Report is the machine's last report, if the master does not have it yet. Heard
	// says that the machine has reported since the last word: the same, without one.
	Report *schema.Report
	Heard  bool
	Usage  *schema.MachineUsage
	Left   bool // the session has ended
}
