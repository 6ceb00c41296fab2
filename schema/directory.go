package schema

import (
	"net/netip"
	"strconv"
)

// DirectoryPart is how many indices of a job are in one entry of a directory.
const DirectoryPart = 64

// DirectoryEntry is a part of what every machine of a cell knows of the others, so that it can find
// tasks by name and reach services while no master answers. An entry is one of: a machine,
// some tasks of a job, a service. It replaces the one before with the same Key.
type DirectoryEntry struct {
	Machine *DirectoryMachine `json:"machine,omitempty"`
	Tasks   *DirectoryTasks   `json:"tasks,omitempty"`
	Service *DirectoryService `json:"service,omitempty"`
}

// DirectoryMachine is where a machine is.
type DirectoryMachine struct {
	Name string `json:"name"`
	// Address is at which other machines reach it; invalid if that is not known.
	Address netip.Addr `json:"address,omitzero"`
	// Subnets are those that its tasks have addresses of: at most one of IPv4 and one of IPv6.
	Subnets []netip.Prefix `json:"subnets,omitempty"`
}

// DirectoryTasks are the tasks of a job with indices from Part*DirectoryPart, up to
// DirectoryPart of them, that have a machine.
type DirectoryTasks struct {
	User string `json:"user"`
	Job  string `json:"job"`
	Part int    `json:"part"`
	// Labels are those of the job, with the cell's own (see OwnLabels).
	Labels map[string]string `json:"labels,omitempty"`
	Tasks  []DirectoryTask   `json:"tasks"` // by index
}

// DirectoryTask is where a task is.
type DirectoryTask struct {
	Index   int        `json:"index"`
	Machine string     `json:"machine"`
	Address netip.Addr `json:"address,omitzero"` // its own, or its machine's; invalid if not known
	Ports   Ports      `json:"ports,omitempty"`
	// Ready says that new connections and requests may go to it.
	Ready bool `json:"ready"`
}

// DirectoryService is a service, and where it is reached.
type DirectoryService struct {
	ServiceSpec
	// Addresses are its virtual addresses: at most one of IPv4 and one of IPv6.
	Addresses []netip.Addr `json:"addresses,omitempty"`
}

// Key names the entry: machine/NAME, tasks/USER/JOB/PART or service/USER/NAME; "" if it has
// none of them.
func (e *DirectoryEntry) Key() string {
	switch {
	case e.Machine != nil:
		return "machine/" + e.Machine.Name
	case e.Tasks != nil:
		return "tasks/" + e.Tasks.User + "/" + e.Tasks.Job + "/" + strconv.Itoa(e.Tasks.Part)
	case e.Service != nil:
		return "service/" + e.Service.User + "/" + e.Service.Name
	}
	return ""
}

// DirectoryChange leads from one version of a directory to the next.
type DirectoryChange struct {
	Whole   bool             // what was there before does not count
	Set     []DirectoryEntry // new, or changed
	Removed []string         // keys
}
