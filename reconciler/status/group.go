package status

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/quota"
	"github.com/musterhq/muster/schema"
)

// Group names a part of a cell. The zero Group is all of it.
type Group struct {
	// Name is a job (user/job), a task (user/job/index) or a machine; "" for all.
	Name string
	// Selector picks jobs by their labels, those that muster gives among them.
	Selector schema.Selector
}

// Of returns the part of s that g names: jobs with their tasks and the machines that these
// are on, and what of the newest commit is not in force for them; of a machine, what it
// holds. Converged and Waiting are then those of these jobs; for a machine, those of the
// cell. It errs with NotFoundError if there is no such thing. Nothing of s is written to,
// and the answer shares its parts with it.
func (g Group) Of(s *Snapshot) (*Snapshot, error) {
	if g.Name == "" && g.Selector.Empty() {
		return s, nil
	}
	n, out := *s.brief, &Snapshot{}
	picked, rejected := map[string]bool{}, map[string]bool{}
	for i := range n.Rejected { // whose newest version may have other labels
		r := &n.Rejected[i]
		rejected[r.Job] = g.Selector.Matches(r.Labels)
		picked[r.Job] = rejected[r.Job] && g.names(r.Job)
	}
	n.Jobs = []JobStatus{}
	for _, p := range g.candidates(s) {
		if g.Picks(p) || rejected[p.Job.Name] && g.namesPart(p) {
			picked[p.Job.Name] = true
			out.parts = append(out.parts, &Part{p.Job, keep(p.Tasks, g.holds), p.waits})
			n.Jobs = append(n.Jobs, *p.Job)
		}
	}
	n.Rejected = keep(n.Rejected, func(r *Rejection) bool { return picked[r.Job] })
	n.Held = keep(n.Held, func(h *intent.Hold) bool {
		return slices.ContainsFunc(h.Jobs, func(job string) bool { return picked[job] })
	})
	under := map[string]bool{schema.AllJobs: true}
	for i := range n.Jobs {
		under[n.Jobs[i].Suspended] = true
	}
	n.Suspended = keep(n.Suspended, func(x *SuspensionStatus) bool { return under[x.Name] })
	type account struct {
		user string
		band schema.Band
	}
	owners := map[account]bool{}
	for i := range n.Jobs {
		user, _, _ := strings.Cut(n.Jobs[i].Name, "/")
		owners[account{user, n.Jobs[i].Band}] = true
	}
	n.Warnings = keep(n.Warnings, func(w *quota.Warning) bool { return owners[account{w.User, w.Band}] })
	out.machines = g.machines(s, out)
	n.Machines = make([]MachineStatus, 0, len(out.machines))
	for _, m := range out.machines {
		n.Machines = append(n.Machines, *m)
	}
	if !g.OfMachine() {
		n.Waits = []Wait{}
		if w := n.unapplied(); w != nil {
			n.Waits = append(n.Waits, *w)
		}
		dirs := dirsOf(&n)
		n.Waiting = n.waitingFor(out.parts, dirs)
		n.Converged = len(n.Waiting) == 0
		n.Blocked = n.blockers(func(dir string) bool { return dirs[dir] })
	}
	out.brief = &n
	return out, g.check(s.brief, out)
}

// machines returns the machine of s that g names, or those of the tasks of part.
func (g Group) machines(s, part *Snapshot) []*MachineStatus {
	on := map[string]bool{g.Name: g.OfMachine()}
	if !g.OfMachine() {
		for _, p := range part.parts {
			for i := range p.Tasks {
				on[p.Tasks[i].Machine] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(s.machines), func(m *MachineStatus) bool { return !on[m.Name] })
}

// OfMachine reports whether g is what a machine holds.
func (g Group) OfMachine() bool { return g.Name != "" && !strings.Contains(g.Name, "/") }

func (g Group) task() bool { return strings.Count(g.Name, "/") > 1 }

// job returns the job that g.Name names, or that the task is of; "" if it names none.
func (g Group) job() string {
	if g.task() {
		return model.JobOf(g.Name)
	}
	if g.OfMachine() {
		return ""
	}
	return g.Name
}

// candidates returns the parts of which g may pick any.
func (g Group) candidates(s *Snapshot) []*Part {
	if g.job() == "" {
		return s.parts
	}
	if p := s.Part(g.job()); p != nil {
		return []*Part{p}
	}
	return nil
}

// names reports whether g picks a job by its name.
func (g Group) names(job string) bool { return !g.OfMachine() && (g.Name == "" || g.job() == job) }

// Picks reports whether g picks a job: by its name, or since it has a task on the machine
// that g names; and by its labels.
func (g Group) Picks(p *Part) bool { return g.Selector.Matches(p.Job.Labels) && g.namesPart(p) }

func (g Group) namesPart(p *Part) bool {
	if g.OfMachine() {
		for i := range p.Tasks {
			if g.holds(&p.Tasks[i]) {
				return true
			}
		}
	}
	return g.names(p.Job.Name)
}

// PicksJob reports whether g, which is not of a machine, picks a job.
func (g Group) PicksJob(j *JobStatus) bool { return g.Selector.Matches(j.Labels) && g.names(j.Name) }

// PicksTask reports whether g picks a task of a job.
func (g Group) PicksTask(j *JobStatus, t *TaskStatus) bool {
	return g.Selector.Matches(j.Labels) && (g.OfMachine() || g.names(j.Name)) && g.holds(t)
}

// PicksMachine reports whether g picks a machine: of a group of jobs, each is.
func (g Group) PicksMachine(m *MachineStatus) bool { return !g.OfMachine() || m.Name == g.Name }

// holds reports whether g.Name names a task of a job that g picks.
func (g Group) holds(t *TaskStatus) bool {
	switch {
	case g.OfMachine():
		return t.Machine == g.Name
	case g.task():
		return t.Name == g.Name
	}
	return true
}

// check errs when nothing of s is left in n.
func (g Group) check(s *Status, n *Snapshot) error {
	switch jobs := len(n.brief.Jobs) + len(n.brief.Rejected); {
	case g.OfMachine() && len(n.machines) == 0:
		return model.NotFound(fmt.Sprintf("cell %s has no machine %q", s.Cell, g.Name), "muster status lists the machines; a job is USER/JOB")
	case g.task() && n.tasks() == 0:
		return model.NotFound(fmt.Sprintf("cell %s has no task %q", s.Cell, g.Name), "muster status lists the jobs")
	case jobs > 0 || g.OfMachine() && g.Selector.Empty():
		return nil
	case g.Selector.Empty():
		return model.NotFound(fmt.Sprintf("cell %s has no job %q", s.Cell, g.Name), "muster status lists the jobs")
	case g.Name != "":
		return model.NotFound(fmt.Sprintf("nothing of %s in cell %s has labels that match %s", g.Name, s.Cell, g.Selector), labelsInUse(s))
	}
	return model.NotFound(fmt.Sprintf("cell %s has no job with labels that match %s", s.Cell, g.Selector), labelsInUse(s))
}

// labelsInUse lists the labels of jobs that owners gave them.
func labelsInUse(s *Status) string {
	const most = 10
	use := map[string]bool{}
	for i := range s.Jobs {
		for k, v := range s.Jobs[i].Labels {
			if !strings.HasPrefix(k, schema.OwnLabels) {
				use[k+"="+v] = true
			}
		}
	}
	list := slices.Sorted(maps.Keys(use))
	if len(list) > most {
		list = append(list[:most], "…")
	}
	if len(list) == 0 {
		return "no job has labels except the built-in ones: " + strings.Join([]string{schema.LabelUser, schema.LabelJob, schema.LabelKind, schema.LabelBand}, ", ")
	}
	return "labels in use: " + strings.Join(list, ", ")
}

// dirsOf returns the directories that declare the jobs of n.
func dirsOf(n *Status) map[string]bool {
	dirs := map[string]bool{}
	for i := range n.Jobs {
		dirs[path.Dir(n.Jobs[i].Origin.Path)] = true
	}
	return dirs
}

// JobNames returns the names, as user/job, of the jobs that run or are to run,
// sorted.
func (s *Status) JobNames() []string {
	names := make([]string, 0, len(s.Jobs))
	for i := range s.Jobs {
		names = append(names, s.Jobs[i].Name)
	}
	for i := range s.Rejected {
		names = append(names, s.Rejected[i].Job)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func repositoryWaits(trouble string) string { return "the repository: " + model.SourceLine(trouble) }

func (u *UnreadCommit) waiting() string { return "the commit could not be read: " + u.Reason }

func (p *StalePackage) waiting() string {
	return fmt.Sprintf("%s is stale: %s", p.Dir, p.Reason)
}

func (p *PendingPackage) waiting() string { return fmt.Sprintf("%s is pending: %s", p.Dir, p.Reason) }

func (r *Rejection) waiting() string {
	return fmt.Sprintf("job %s is rejected: %s", r.Job, r.Diagnostic.Message)
}

func (j *JobStatus) waiting() string { return fmt.Sprintf("job %s: %s", j.Name, j.Reason) }

// labelsOf returns the labels of a job: its owner's and those that muster gives.
func labelsOf(name schema.JobName, data *schema.Job) map[string]string {
	if data != nil {
		return data.AllLabels()
	}
	return map[string]string{schema.LabelUser: name.User, schema.LabelJob: name.Job}
}

func keep[T any](list []T, want func(*T) bool) []T {
	out := make([]T, 0, len(list))
	for i := range list {
		if want(&list[i]) {
			out = append(out, list[i])
		}
	}
	return out
}
