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

// Of returns the part of s that g names: jobs with their tasks, and what of the
// newest commit is not in force for them; of a machine, what it holds. Converged
// and Waiting are then told for these jobs alone, but of a machine for the cell.
// It errs with NotFoundError if there is no such thing. s is not written to, and
// shares its parts with the answer.
func (g Group) Of(s *Status) (*Status, error) {
	if g.Name == "" && g.Selector.Empty() {
		return s, nil
	}
	n := *s
	picked := g.jobs(s)
	n.Jobs = keep(s.Jobs, func(j *JobStatus) bool { return picked[j.Name] })
	n.Rejected = keep(s.Rejected, func(r *Rejection) bool { return picked[r.Job] })
	n.Held = keep(s.Held, func(h *intent.Hold) bool {
		return slices.ContainsFunc(h.Jobs, func(job string) bool { return picked[job] })
	})
	under := map[string]bool{schema.AllJobs: true}
	for i := range n.Jobs {
		under[n.Jobs[i].Suspended] = true
	}
	n.Suspended = keep(s.Suspended, func(x *SuspensionStatus) bool { return under[x.Name] })
	type account struct {
		user string
		band schema.Band
	}
	owners := map[account]bool{}
	for i := range n.Jobs {
		user, _, _ := strings.Cut(n.Jobs[i].Name, "/")
		owners[account{user, n.Jobs[i].Band}] = true
	}
	n.Warnings = keep(s.Warnings, func(w *quota.Warning) bool { return owners[account{w.User, w.Band}] })
	n.Tasks = keep(s.Tasks, func(t *TaskStatus) bool { return picked[model.JobOf(t.Name)] && g.holds(t) })
	if g.machine() {
		n.Machines = keep(s.Machines, func(m *MachineStatus) bool { return m.Name == g.Name })
	} else {
		n.Waits = []Wait{}
		if w := n.unapplied(); w != nil {
			n.Waits = append(n.Waits, *w)
		}
		n.Waiting = waitingFor(&n)
		n.Converged = len(n.Waiting) == 0
		dirs := dirsOf(&n)
		n.Blocked = n.blockers(func(dir string) bool { return dirs[dir] })
	}
	return &n, g.check(s, &n)
}

func (g Group) machine() bool { return g.Name != "" && !strings.Contains(g.Name, "/") }

func (g Group) task() bool { return strings.Count(g.Name, "/") > 1 }

// holds reports whether g.Name names a task of it.
func (g Group) holds(t *TaskStatus) bool {
	switch {
	case g.Name == "":
		return true
	case g.machine():
		return t.Machine == g.Name
	}
	return t.Name == g.Name || model.JobOf(t.Name) == g.Name
}

// jobs returns the names of the jobs that g picks.
func (g Group) jobs(s *Status) map[string]bool {
	held := map[string]bool{}
	for i := range s.Tasks {
		if g.machine() && g.holds(&s.Tasks[i]) {
			held[model.JobOf(s.Tasks[i].Name)] = true
		}
	}
	named := func(job string) bool {
		if g.machine() {
			return held[job]
		}
		return g.Name == "" || g.Name == job || model.JobOf(g.Name) == job
	}
	picked := map[string]bool{}
	for i := range s.Jobs {
		if j := &s.Jobs[i]; named(j.Name) && g.Selector.Matches(j.Labels) {
			picked[j.Name] = true
		}
	}
	for i := range s.Rejected {
		if r := &s.Rejected[i]; named(r.Job) && g.Selector.Matches(r.Labels) {
			picked[r.Job] = true
		}
	}
	return picked
}

// check errs when nothing of s is left in n.
func (g Group) check(s, n *Status) error {
	switch jobs := len(n.Jobs) + len(n.Rejected); {
	case g.machine() && len(n.Machines) == 0:
		return model.NotFound(fmt.Sprintf("cell %s has no machine %q", s.Cell, g.Name), "muster status lists the machines; a job is USER/JOB")
	case g.task() && len(n.Tasks) == 0:
		return model.NotFound(fmt.Sprintf("cell %s has no task %q", s.Cell, g.Name), "muster status lists the jobs")
	case jobs > 0 || g.machine() && g.Selector.Empty():
		return nil
	case g.Selector.Empty():
		return model.NotFound(fmt.Sprintf("cell %s has no job %q", s.Cell, g.Name), "muster status lists the jobs")
	case g.Name != "":
		return model.NotFound(fmt.Sprintf("nothing of %s in cell %s has labels that match %s", g.Name, s.Cell, g.Selector), labelsInUse(s))
	}
	return model.NotFound(fmt.Sprintf("cell %s has no job with labels that match %s", s.Cell, g.Selector), labelsInUse(s))
}

// labelsInUse tells which labels jobs have that owners gave them.
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
		return "no job has labels but those that muster gives: " + strings.Join([]string{schema.LabelUser, schema.LabelJob, schema.LabelKind, schema.LabelBand}, ", ")
	}
	return "labels in use: " + strings.Join(list, ", ")
}

// waitingFor returns what stands between the jobs of n and the newest commit.
func waitingFor(n *Status) []string {
	out := []string{}
	if n.Source != "" {
		out = append(out, repositoryWaits(n.Source))
	}
	for i := range n.Waits {
		out = append(out, n.Waits[i].Message)
	}
	if n.Unread != nil {
		out = append(out, n.Unread.waiting())
	}
	dirs := dirsOf(n)
	rejected := map[string]bool{}
	for i := range n.Stale {
		if st := &n.Stale[i]; dirs[st.Dir] {
			out = append(out, st.waiting())
		}
	}
	for i := range n.Held {
		out = append(out, n.Held[i].Waiting())
	}
	for i := range n.Suspended {
		if x := &n.Suspended[i]; x.Waits != "" {
			out = append(out, x.waiting())
		}
	}
	for i := range n.Rejected {
		rejected[n.Rejected[i].Job] = true
		out = append(out, n.Rejected[i].waiting())
	}
	for i := range n.Jobs {
		if j := &n.Jobs[i]; j.Reason != "" && !rejected[j.Name] {
			out = append(out, j.waiting())
		}
	}
	return out
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

func (u *UnreadCommit) waiting() string { return "nothing of the commit could be read: " + u.Reason }

func (p *StalePackage) waiting() string { return fmt.Sprintf("%s is stale: %s", p.Dir, p.Reason) }

func (r *Rejection) waiting() string {
	return fmt.Sprintf("job %s is rejected: %s", r.Job, r.Diagnostic.Message)
}

func (j *JobStatus) waiting() string { return fmt.Sprintf("job %s: %s", j.Name, j.Reason) }

// labelsOf returns the labels of a job: its owner's and those that muster gives.
func labelsOf(name schema.JobName, data *schema.Job) map[string]string {
	out := map[string]string{schema.LabelUser: name.User, schema.LabelJob: name.Job}
	if data != nil {
		maps.Copy(out, data.Labels)
		out[schema.LabelKind] = string(data.Kind)
		if data.Priority != schema.PriorityNamed { // then nobody declares it, and its band is unknown
			out[schema.LabelBand] = string(data.Priority.Band())
		}
	}
	return out
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
