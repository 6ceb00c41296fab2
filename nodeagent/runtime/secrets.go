package runtime

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/nodeagent/host"
	"github.com/musterhq/muster/nodeagent/keeper"
	"github.com/musterhq/muster/nodeagent/secrets"
	"github.com/musterhq/muster/schema"
)

// secretsDir is where a task that sees the machine's tree finds its secrets: in what hides
// the directory of its generation.
const secretsDir = "secrets"

// errNoSecrets is why a task with secrets is not started here. The cell knows, and asks only
// machines that say they can.
var errNoSecrets = errors.New("the task needs secrets, which this machine cannot hold")

// safe is where the secrets of tasks are, of a machine that has any.
type safe struct{ *secrets.Machine }

// give puts the secrets of the task of a, whose incarnation is in dir, where it finds
// them, and returns the directory of them all; "" if it has none.
func (s safe) give(dir string, a *schema.Assignment, u *host.User) (string, error) {
	if len(a.Job.Task.Secrets) == 0 {
		return "", nil
	}
	if s.Machine == nil {
		return "", errNoSecrets
	}
	given, err := s.Of(a, slices.Sorted(maps.Keys(a.Job.Task.Secrets)), (*secrets.User)(u))
	if err != nil {
		return "", err
	}
	defer given.Clear()
	return s.Dir(dir), s.Put(dir, given)
}

// renew gives a task that runs the secrets of a that have changed, by their names in
// nodeagent.Given.
func (s safe) renew(dir string, a *schema.Assignment, changed []string, u *host.User) error {
	var names []string
	for _, c := range changed {
		name, ok := strings.CutPrefix(c, nodeagent.GivenSecret(""))
		if _, has := a.Job.Task.Secrets[name]; ok && has {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	if s.Machine == nil {
		return errNoSecrets
	}
	given, err := s.Of(a, names, (*secrets.User)(u))
	if err != nil {
		return err
	}
	defer given.Clear()
	return s.Change(dir, given)
}

// drop removes what the incarnation in dir was given.
func (s safe) drop(dir string) error {
	if s.Machine == nil {
		return nil
	}
	return s.Remove(dir)
}

// keep removes what others were given than the incarnations in dirs.
func (s safe) keep(dirs []string) error {
	if s.Machine == nil {
		return nil
	}
	return s.Keep(dirs)
}

// ofSecrets returns the directory of all that the task is given, and that of its
// environment; "" of a task without.
func (p *places) ofSecrets() (all, env string) {
	if p.secrets == "" {
		return "", ""
	}
	return p.secrets, secrets.Env(p.secrets)
}

// secretsIn returns where the task finds its secrets.
func (s *surroundings) secretsIn(p places) string {
	switch {
	case p.apart():
		return ownSecrets
	case s.isolation.namespaces:
		return filepath.Join(filepath.Dir(p.Work), secretsDir)
	}
	return secrets.Files(p.secrets)
}

// secretsMount puts the secrets of a task where it finds them.
func (s *surroundings) secretsMount(p places) []keeper.Mount {
	if p.secrets == "" {
		return nil
	}
	return []keeper.Mount{{Kind: keeper.Bind, Source: secrets.Files(p.secrets), Target: s.secretsIn(p), ReadOnly: true}}
}
