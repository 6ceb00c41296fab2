package quota

import "github.com/musterhq/muster/schema"

// RejectionCause is a word for why a job is not admitted.
type RejectionCause string

// The causes.
const (
	RejectedRefused   RejectionCause = "refused"    // it names what there is not, or what it may not use
	RejectedNoQuota   RejectionCause = "no-quota"   // its owner has none at its band
	RejectedNotNow    RejectionCause = "not-now"    // none of them counts at this time
	RejectedOverQuota RejectionCause = "over-quota" // it asks for more than there is left
	RejectedTooMany   RejectionCause = "too-many"   // its owner, or the cell, would have too many tasks, or too many that may not be preempted
	RejectedGang      RejectionCause = "gang"       // it fits, and another job of its gang does not
)

// Warning is that a quota is less than it says, or than what its owner has
// admitted. One without a user is of the commit.
type Warning struct {
	User       string            `json:"user,omitempty"`
	Band       schema.Band       `json:"band,omitempty"`
	Diagnostic schema.Diagnostic `json:"diagnostic"`
}
