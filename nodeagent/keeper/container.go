package keeper

import (
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/nodeagent/bundle"
)

// Container is what a task has in place of a Sandbox that runs an image. An OCI runtime
// makes its namespaces and its root directory, with a first process of ours that reaps. The
// keeper forks the task there, as it does commands beside a task. So it is held, limited and
// entered as every task is.
//
// Spec.User is that of the machine as which the task's main process runs, and Command and
// Dir are the container's.
type Container struct {
	bundle.Container
	// Capabilities, as bits, are kept by a main process that is user 0 of the container.
	Capabilities uint64 `json:"capabilities,omitempty"`
	// IPC is that of Sandbox.
	IPC string `json:"ipc,omitempty"`
	// Network says that lo, of a network namespace of its own, is to be brought up.
	Network bool `json:"network,omitempty"`
	// JoinNetwork is that of Sandbox. A Kernel is in a network namespace of its own, whose packets go
	// there and come from there.
	JoinNetwork string `json:"joinNetwork,omitempty"`
	// Terminals says that it has terminals of its own.
	Terminals bool `json:"terminals,omitempty"`
}

// Isolated reports whether the task has a pid namespace, with our init in it.
func (s *Spec) Isolated() bool { return s.Sandbox != nil || s.Container != nil }

// inside returns the user that runs the task as the task itself sees it; nil is the
// keeper's own.
func (s *Spec) inside() *User {
	if s.HasKernel() {
		return &User{} // the runtime, which makes the task's user
	}
	if c := s.Container; c != nil {
		return &User{UID: c.Users.Inside, GID: c.Groups.Inside}
	}
	return s.User
}

// HasKernel reports whether the task's main process is the runtime of a kernel in user space,
// which the task is in: see kernel.go.
func (s *Spec) HasKernel() bool { return s.Container != nil && s.Container.Kernel }

// relayed reports whether the task is in a kernel that has a network namespace, from which all goes over another one,
// that the task joins: whoever is nobody may take no packets from an interface of root's.
func (s *Spec) relayed() bool { return s.HasKernel() && s.Container.JoinNetwork != "" }

// hidden is what a runtime that takes packets is not to see: it takes the presence of a file in it for that it is in
// the machine's own network namespace, where it would take the machine's packets. Kernels of today have it in each one.
const (
	hidden        = "/proc/sys/net/core"
	hiddenType    = "tmpfs"
	hiddenOptions = "size=4k"
)

// keeps returns the capabilities that the task keeps, as bits.
func (s *Spec) keeps() uint64 {
	kept := s.Capabilities
	if c := s.Container; c != nil && c.Users.Inside == 0 {
		kept |= c.Capabilities
	}
	return kept
}

// ambient reports whether what the task keeps must be handed on to what it executes: root has
// it without that, and others have it not.
func (s *Spec) ambient() bool {
	u := s.inside()
	return s.keeps() != 0 && u != nil && u.UID != 0
}

// rooms are the namespaces that a runtime makes for it, as flags of setns.
func (c *Container) rooms() int {
	rooms := unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWUTS
	if c.IPC == "" {
		rooms |= unix.CLONE_NEWIPC
	}
	if c.Network {
		rooms |= unix.CLONE_NEWNET
	}
	return rooms
}
