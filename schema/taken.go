package schema

import (
	"fmt"
	"strings"
	"time"
)

// Connection describes an agent that connects, as far as the master's end of the link knows.
type Connection struct {
	// From is where it connects from: an address, or a process of the master's
	// machine.
	From string
	// Answers says that another agent with the same name is connected, and answers.
	Answers bool
	// Life distinguishes the agent's process from others; "" of an earlier release.
	Life string
	// Key is the digest of the key that the agent has shown a certificate for, and
	// Issued when that was issued; "" where the kernel says who it is.
	Key    string
	Issued time.Time
}

// Place says which agent has the name of a machine, and where that is.
type Place struct {
	ID    string    `json:"id,omitempty"`   // of its state directory; "" of an earlier release
	Host  string    `json:"host,omitempty"` // the name that its kernel has
	From  string    `json:"from,omitempty"` // where it connects from, as the master sees it
	Boot  string    `json:"boot,omitempty"` // of its kernel
	Since time.Time `json:"since,omitzero"` // when it joined; zero of one that has not
}

// PlaceOf returns the place of an agent that connects.
func PlaceOf(i *MachineInfo) Place {
	return Place{ID: i.ID, Host: i.Attributes["hostname"], From: i.Link.From, Boot: i.Boot}
}

// String returns host, address, id and time, as far as they are known.
func (p Place) String() string {
	var parts []string
	if p.Host != "" {
		parts = append(parts, "host "+p.Host)
	}
	if p.From != "" {
		parts = append(parts, p.From)
	}
	if p.ID != "" {
		parts = append(parts, "id "+p.ID)
	} else {
		parts = append(parts, "no id")
	}
	if !p.Since.IsZero() {
		parts = append(parts, "joined at "+p.Since.UTC().Format(time.RFC3339))
	}
	return strings.Join(parts, ", ")
}

// TakenError refuses an agent with the name, or the id, of a machine that another
// agent is.
type TakenError struct {
	Machine     string // that the one who asks says it is
	Holder      string // the machine that the other one is: the same, but for a copy
	Here, There Place  // who asks, and who is that machine
	Why         string // the name is not given to the one who asks
	Hint        string // what to do
}

// Error names both places, and on a second line what to do.
func (e *TakenError) Error() string { return e.Hinted().Error() }

// Hinted takes the two apart.
func (e *TakenError) Hinted() *HintedError {
	return Hintf(e.Hint, "machine %s: this agent (%s) conflicts with another one (%s) and is refused: %s", e.Machine, e.Here, e.There, e.Why)
}

// HolderEvent returns the message about the refusal in the history of the machine that the
// other agent is.
func (e *TakenError) HolderEvent() string {
	return WithHint(fmt.Sprintf("another agent (%s) with the name %s conflicts with the agent of this machine (%s) and is refused: %s", e.Here, e.Machine, e.There, e.Why), e.Hint)
}

// Forgotten says that a machine is gone for good.
type Forgotten struct {
	// By is who said so: the name in a certificate, or the user of the master's
	// machine; "" of one whose name another machine has got.
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// String says who has said it, and why.
func (f *Forgotten) String() string {
	if f.By == "" {
		return "forgotten: " + f.Reason
	}
	return fmt.Sprintf("forgotten by %s: %s", f.By, f.Reason)
}

// Forgetting is the answer to a request that a machine be forgotten.
type Forgetting struct {
	Machine string `json:"machine"`
	// Place is where the machine was.
	Place Place `json:"place"`
	// Tasks are those that it had, by name, user/job/index, and sorted: they are
	// rescheduled.
	Tasks []string `json:"tasks"`
	// NeverTwice are those of them that must never run twice.
	NeverTwice []string `json:"neverTwice"`
	// Done says that it is forgotten; without it nothing has happened yet.
	Done bool `json:"done"`
}
