package schema

import "slices"

// Container is a command run in an image, with the image's files as its root
// directory. As in Kubernetes, Command replaces the entrypoint of the image and
// Args its default arguments, which a Command alone removes; $(NAME) is expanded
// in both (see Expand).
type Container struct {
	// Image is an ImageRef: it names one image for ever, by its digest.
	Image   string   `json:"image"`
	Command []string `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
	// Workdir is an absolute path in the container; "" is what the image says.
	Workdir string `json:"workdir,omitempty"`
	// User is a name or number of the container's own users, with :GROUP if
	// another group than the user's; "" is what the image says.
	User string `json:"user,omitempty"`
	// ReadOnly keeps the task from writing to its root directory.
	ReadOnly bool `json:"readOnly,omitempty"`
	// Runtime is the program that must run it; "" is any that the machine has.
	Runtime ContainerRuntime `json:"runtime,omitempty"`
}

// ContainerRuntime is an OCI runtime.
type ContainerRuntime string

// The runtimes.
const (
	Crun  ContainerRuntime = "crun"
	Runc  ContainerRuntime = "runc"
	Runsc ContainerRuntime = "runsc" // gVisor
)

// MaxContainerID is the greatest number of a user or group in a container, whose
// user namespace has as many.
const MaxContainerID = 65535

// Attribute returns the attribute that is "true" of a machine that has r;
// HasContainers for any runtime.
func (r ContainerRuntime) Attribute() string {
	if r == "" {
		return HasContainers
	}
	return HasContainers + "." + string(r)
}

// Image returns the image that the task runs in, "" for a process.
func (s *TaskSpec) Image() string {
	if s.Container == nil {
		return ""
	}
	return s.Container.Image
}

// Brings returns what must be on a machine before the task is started there: its image, those
// of its Before, and the sources of its packages, each once.
func (s *TaskSpec) Brings() []string {
	var out []string
	if image := s.Image(); image != "" {
		out = append(out, image)
	}
	for i := range s.Before {
		if c := s.Before[i].Container; c != nil && !slices.Contains(out, c.Image) {
			out = append(out, c.Image)
		}
	}
	for i := range s.Packages {
		if name := s.Packages[i].Source(); !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}
