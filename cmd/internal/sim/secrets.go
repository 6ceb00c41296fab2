package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// The server of all packages, and its mirror.
const (
	packageServer = "files.example"
	packageMirror = "mirror.example"
)

// secretive gives a job of p a secret, of which there is another version for each n.
func secretive(p *schema.Package, j schema.Job, n int, on schema.OnChange) schema.Job {
	version := fmt.Sprintf("%s/%s-%d", p.Dir, j.Name, n)
	j.Task.Secrets = map[string]schema.TaskSecret{"key": {OnChange: on, Sealed: &schema.SealedSecret{Version: version, Age: "ciphertext of " + version}}}
	return j
}

// packaged gives a job a package, of which there is another version for each n.
func packaged(j schema.Job, n int) schema.Job {
	sum := schema.DigestBytes([]byte(fmt.Sprint("package ", n)))
	j.Task.Packages = []schema.TaskPackage{{Name: "tool", Path: "/opt/tool", From: "https://" + packageServer + "/tool", Digest: sum}}
	return j
}

// addLogin gives the user of p a login for a registry, of which there is another version for
// each n.
func addLogin(p *schema.Package, registry string, n int) {
	s := schema.Secret{Name: "pull", User: p.Dir[len("teams/"):], Cell: cellName, Registry: registry, Age: fmt.Sprint("ciphertext of login ", n)}
	key := schema.ObjectKey{Kind: schema.KindSecret, Name: s.ID()}
	p.Objects.Secrets = append(p.Objects.Secrets, s)
	p.Origins[key] = schema.Position{Path: p.Dir + "/pull.cue", Line: 1, Column: 1}
	p.Opened = map[schema.ObjectKey]schema.Opened{key: {Version: fmt.Sprintf("%s/pull-%d", p.Dir, n)}}
}

// takeVersions takes down the versions of all secrets of a commit.
func (w *World) takeVersions(c *schema.Compiled) {
	for i := range c.Packages {
		p := c.Packages[i].Package
		if p == nil {
			continue
		}
		for _, o := range p.Opened {
			w.versions[o.Version] = true
		}
		for j := range p.Objects.Jobs {
			for _, s := range p.Objects.Jobs[j].Task.Secrets {
				w.versions[s.Sealed.Version] = true
			}
		}
	}
}

// sealedFor is a version of a secret as only a machine can open it.
func sealedFor(m *machine, version string) string { return version + " for " + m.name }

// seal gives a view what the link sends with it: of all secrets those that it needs, as ever
// they were. While there is trouble with the master's disk it cannot open them.
func (w *World) seal(m *machine, v schema.View) schema.View {
	v = *v.Unsealed()
	gone := w.keyless()
	all := make(map[string]schema.MachineSecret, len(w.versions))
	for version := range w.versions {
		if all[version] = (schema.MachineSecret{Sealed: sealedFor(m, version)}); gone {
			all[version] = schema.MachineSecret{Refused: "no identity"}
		}
	}
	if v.Secrets = v.Needs(all); gone && len(v.Secrets) > 0 {
		m.refused = max(m.refused, v.Epoch)
	}
	return v
}

// keyless reports whether the master cannot read its identities.
func (w *World) keyless() bool { return w.now.Before(w.gitGone) || w.now.Before(w.slow) }

// sealAgain ends the session of a machine that was refused secrets, once there is nothing
// wrong any more: who gives a master its identities starts it anew.
func (w *World) sealAgain(m *machine) {
	if m.refused > 0 && !w.keyless() {
		w.endSession(m, m.refused, w.now)
		m.refused = 0
	}
}

// bring begins to bring what an agent asks for, which takes a while and may fail.
func (w *World) bring(m *machine, t *nodeagent.Turn) {
	a := m.agent
	maps.DeleteFunc(m.content, func(name string, _ bool) bool { return !slices.Contains(t.Images, name) })
	for _, name := range t.Bring {
		at := w.now
		if !m.content[name] {
			at = at.Add(time.Duration(w.hash(uint64(w.turns), uint64(m.index)) % 16 * uint64(tick))) //nolint:gosec // it is small
		}
		a.coming[name] = at
		m.wakeBy(at)
	}
}

// brought says what has become of what was to be brought.
func (w *World) brought(m *machine) {
	a := m.agent
	for _, name := range sortedKeys(a.coming) {
		if at := a.coming[name]; w.now.Before(at) {
			m.wakeBy(at)
			continue
		}
		delete(a.coming, name)
		var err error
		if !m.content[name] && w.hash(uint64(w.turns), uint64(m.index))%4 == 0 {
			err = errDisk
		} else {
			m.content[name], m.had[name] = true, true
		}
		a.core.Brought(name, err, time.Time{}, m.clock.read(w.now))
		a.news = true
	}
}

// checkGiven: a task is started only where its packages are, with all its secrets, of the
// versions that it names.
func (w *World) checkGiven(m *machine, x *nodeagent.Act) {
	a := x.Assignment
	for _, name := range sortedKeys(a.Job.Task.Secrets) {
		if version := a.Job.Task.Secrets[name].Sealed.Version; a.Secrets[version] != sealedFor(m, version) {
			w.violate("task %s generation %d is started on %s, which does not have its secret %s", a.Task, a.Generation, m.name, version)
		}
	}
	for _, name := range a.Job.Task.Brings() {
		if !m.content[name] {
			w.violate("task %s generation %d is started on %s, which does not have %s", a.Task, a.Generation, m.name, name)
		}
	}
}

// give takes down which versions of its secrets an incarnation has from now on.
func (w *World) give(m *machine, x *nodeagent.Act, r *run) {
	w.checkGiven(m, x)
	r.secrets = map[string]string{}
	for name, s := range x.Assignment.Job.Task.Secrets {
		r.secrets[name] = s.Sealed.Version
	}
}

// checkHeld: a machine keeps no secret that nothing it is assigned needs.
func (w *World) checkHeld(m *machine, v *schema.View) {
	if v == nil {
		return
	}
	needs := map[string]bool{}
	for i := range v.Assignments {
		for _, s := range v.Assignments[i].Job.Task.Secrets {
			needs[s.Sealed.Version] = true
		}
	}
	for _, version := range sortedKeys(v.Secrets) {
		user, login, _ := strings.Cut(strings.TrimPrefix(version, "teams/"), "/")
		mine := slices.ContainsFunc(v.Assignments, func(a schema.Assignment) bool { return a.Task.User == user })
		if !needs[version] && (!strings.HasPrefix(login, "pull-") || !mine) {
			w.violate("%s keeps secret %s, which nothing there needs", m.name, version)
		}
	}
}

// checkBroughtFirst: a task that runs is stopped for an update only once its machine has had
// what the next version needs; before is what was stored.
func (w *World) checkBroughtFirst(before snap) {
	s := w.master.state
	for name, c := range s.Chunks {
		if before[name] == c || s.Jobs[name.Job] == nil || s.Data[s.Jobs[name.Job].Admitted] == nil {
			continue
		}
		for i := range c.Tasks {
			t := &c.Tasks[i]
			was := before.record(name.Job.Task(t.Index))
			if t.Stop == nil || t.Stop.Kind != schema.CauseUpdate || was == nil || was.Stop != nil || was.Generation != t.Generation || !w.works(was) {
				continue
			}
			m := w.named(t.Machine)
			for _, need := range s.Data[s.Jobs[name.Job].Admitted].Task.Brings() {
				if !m.had[need] && m.drawn == 0 {
					w.violate("task %s is stopped for an update, and %s has not brought %s", name.Job.Task(t.Index), m.name, need)
				}
			}
		}
	}
}

// loginsIn says which logins a view has.
func loginsIn(v *schema.View) string {
	var out []string
	for i := range v.Registries {
		for _, l := range v.Registries[i].Logins {
			out = append(out, l.User+" "+v.Registries[i].Name+" "+cmp.Or(l.Trouble, l.Sealed.Version))
		}
	}
	return strings.Join(out, ", ")
}

// loginsFor says which logins a machine is to have, by what is stored: those of the users whose
// tasks there need a package, or are to have one next.
func (w *World) loginsFor(machine string) string {
	s := w.master.state
	users := map[string]bool{}
	for name, c := range s.Chunks {
		for i := range c.Tasks {
			if t := &c.Tasks[i]; t.Machine == machine && (len(t.Bring) > 0 || len(s.Data[t.Data].Task.Packages) > 0) {
				users[name.Job.User] = true
			}
		}
	}
	logins := map[string]string{} // by registry and user
	for _, digest := range s.Head.Packages {
		p := s.Packages[digest]
		for i := range p.Objects.Secrets {
			if x := &p.Objects.Secrets[i]; users[x.User] {
				logins[x.Registry+" "+x.User] = x.User + " " + x.Registry + " " + p.Opened[schema.ObjectKey{Kind: schema.KindSecret, Name: x.ID()}].Version
			}
		}
	}
	var out []string
	for _, name := range sortedKeys(logins) {
		out = append(out, logins[name])
	}
	return strings.Join(out, ", ")
}

// current errs unless all that runs has the newest versions of its secrets.
func (w *World) current() error {
	want := map[schema.JobName]*schema.Job{}
	for _, p := range w.repo.packages {
		for i := range p.Objects.Jobs {
			want[p.Objects.Jobs[i].ID()] = &p.Objects.Jobs[i]
		}
	}
	for _, m := range w.machines {
		for _, r := range m.alive {
			j := want[r.of.assignment.Task.JobName]
			if j == nil {
				continue
			}
			for _, name := range sortedKeys(j.Task.Secrets) {
				if is := j.Task.Secrets[name].Sealed.Version; r.secrets[name] != is {
					return fmt.Errorf("%s runs on %s with version %q of its secret, want %q", r.of.assignment.Task, m.name, r.secrets[name], is)
				}
			}
		}
	}
	return nil
}
