package schema

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// DefaultPath is a task's PATH where its env sets none: Debian's for root, so
// that a command is found no matter how the agent was started.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// PortVariable returns the environment variable that holds the port of the
// given name: MUSTER_PORT_<NAME>, upper case, with _ for -.
func PortVariable(name string) string {
	return "MUSTER_PORT_" + strings.ReplaceAll(strings.ToUpper(name), "-", "_")
}

// Environment returns what the task of a finds in its environment: PATH, what
// its job declares, and the MUSTER_ variables, which nothing overrides. Declared
// values may refer to the MUSTER_ variables; not to each other, since they have
// no order. A container has the variables of its image, too, PATH among them,
// where this sets none of the same name.
func (a *Assignment) Environment() map[string]string {
	own := a.variables()
	env := map[string]string{}
	if a.Job.Task.Container == nil {
		env["PATH"] = DefaultPath
	}
	for k, v := range a.Job.Task.Env {
		env[k] = Expand(v, own)
	}
	maps.Copy(env, own)
	return env
}

// Command returns the command of the task of a, each word expanded with the
// task's Environment; nil for a container that runs the entrypoint of its image.
func (a *Assignment) Command() []string {
	if c := a.Job.Task.Container; c != nil {
		return a.Expand(c.Command)
	}
	return a.Expand(a.Job.Task.Process.Command)
}

// Args returns the arguments that a container declares, expanded as its Command;
// nil for those of the image, and for a process.
func (a *Assignment) Args() []string {
	if c := a.Job.Task.Container; c != nil {
		return a.Expand(c.Args)
	}
	return nil
}

// Expand returns command with each word expanded with the task's Environment.
func (a *Assignment) Expand(command []string) []string {
	env := a.Environment()
	words := slices.Clone(command)
	for i, w := range words {
		words[i] = Expand(w, env)
	}
	return words
}

// variables returns the MUSTER_ variables of the task of a.
func (a *Assignment) variables() map[string]string {
	vars := map[string]string{
		"MUSTER_CELL":       a.Task.Cell,
		"MUSTER_USER":       a.Task.User,
		"MUSTER_JOB":        a.Task.Job,
		"MUSTER_TASK_INDEX": strconv.Itoa(a.Task.Index),
	}
	if a.Alloc != nil {
		vars[AllocVariable] = a.Alloc.String()
	}
	maps.Copy(vars, a.Local)
	for _, at := range a.Network.At() {
		if _, has := vars[AddressVariable]; !has {
			vars[AddressVariable] = at.String()
		}
		if at.Is6() {
			vars[AddressVariable6] = at.String()
		}
	}
	maps.Copy(vars, deviceVariables(a.Devices, a.Job.Task.Resources.FirstOf))
	for _, p := range a.Ports {
		vars[PortVariable(p.Name)] = strconv.Itoa(p.Port)
	}
	return vars
}

// Expand replaces each $(NAME) in s by vars[NAME], once: what comes in is not
// expanded again. As in Kubernetes, $$ stands for one $ (so $$(NAME) becomes
// $(NAME)), and a name that is not in vars, a $( without its end and any other
// $ stay as they are.
func Expand(s string, vars map[string]string) string {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '$')
		if i < 0 || i == len(s)-1 {
			return b.String() + s
		}
		b.WriteString(s[:i])
		text, n := expandOne(s[i:], vars)
		b.WriteString(text)
		s = s[i+n:]
	}
}

// expandOne returns what the operator at the start of s stands for, and how
// many bytes of s that took. s has a $ and at least one byte more.
func expandOne(s string, vars map[string]string) (text string, n int) {
	if s[1] == '$' {
		return "$", 2
	}
	end := strings.IndexByte(s, ')')
	if s[1] != '(' || end < 0 {
		return s[:2], 2
	}
	if v, ok := vars[s[2:end]]; ok {
		return v, end + 1
	}
	return s[:end+1], end + 1
}
