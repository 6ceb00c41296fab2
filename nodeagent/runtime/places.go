package runtime

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/schema"
)

// places are the directories of one task, as the machine has them.
type places struct {
	host.Places
	root      string // the task's root directory, links resolved; "" is the machine's
	container bool   // its root directory is an image
	secrets   string // what it is given of secrets, in memory; "" without
	machines  bool   // root is the machine's own, put together anew
	own       []mounted
	network   *ownNetwork // nil: it has that of the machine, or none
}

// apart reports whether the task's root directory is not the machine's.
func (p *places) apart() bool { return p.root != "" || p.container }

// local returns a with the variables that say where the task finds p.
func (s *surroundings) local(a *schema.Assignment, p places) *schema.Assignment {
	local := map[string]string{}
	if _, sticky, _ := s.inside(p); sticky != "" {
		local[schema.StickyVariable] = sticky
	}
	if p.Shared != "" {
		if local[schema.AllocDirVariable] = p.Shared; p.apart() {
			local[schema.AllocDirVariable] = ownShared
		}
	}
	if p.secrets != "" {
		local[schema.SecretsVariable] = s.secretsIn(p)
	}
	b := *a
	b.Local = local
	return &b
}

// findRoot returns the real path of a task's root directory. That there is none is the
// task's fault: it names it.
func (s *surroundings) findRoot(root string) (string, error) {
	in := func(dirs []string, path string) bool {
		return slices.ContainsFunc(dirs, func(dir string) bool { return below(path, dir) })
	}
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		return "", nodeagent.TaskError(fmt.Errorf("task.process.root: %w: it must be on the machine before the task is", err))
	}
	info, err := os.Stat(real)
	switch {
	case err != nil:
		return "", nodeagent.TaskError(fmt.Errorf("task.process.root: %w", err))
	case !info.IsDir():
		return "", nodeagent.TaskError(fmt.Errorf("task.process.root: %s is not a directory", root))
	case in(s.hidden, real):
		return "", nodeagent.TaskError(fmt.Errorf("task.process.root: %s is hidden from tasks", root))
	case in([]string{procDir, sysDir, devDir}, real): // /proc has the processes of all, by the names of directories
		return "", nodeagent.TaskError(fmt.Errorf("task.process.root: %s shows what the kernel knows of the machine, and has no programs", root))
	}
	return real, nil
}
