package plan

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/quota"
	"github.com/musterhq/muster/schema"
)

// whatIf is the directory of what is declared only to see what would be: one whose packages may
// declare machines and cells. Where the repository has it, a number follows.
const whatIf = "cells/what-if"

// whatIfCommit stands for the commit that declares it.
const whatIfCommit = "ffffffffffffffffffffffffffffffffffffffff"

// desired returns the packages that the cell's head has, as a commit that changes nothing, and
// one more that objects are added to.
func (c *Cell) desired() (schema.Compiled, *schema.Package) {
	head := &c.state().Head
	for n := 1; c.aside == ""; n++ {
		dir := whatIf
		if n > 1 {
			dir = fmt.Sprintf("%s-%d", whatIf, n)
		}
		if _, taken := head.Packages[dir]; !taken { // by the repository
			c.aside = dir
		}
	}
	out := schema.Compiled{Commit: whatIfCommit}
	for dir, p := range c.state().HeadPackages() {
		if dir != c.aside {
			out.Packages = append(out.Packages, schema.CompiledPackage{Dir: dir, Package: p, Digest: head.Packages[dir]})
		}
	}
	slices.SortFunc(out.Packages, func(a, b schema.CompiledPackage) int { return strings.Compare(a.Dir, b.Dir) })
	return out, &schema.Package{Dir: c.aside, Origins: map[schema.ObjectKey]schema.Position{}}
}

// commitWith has the head of the cell become commit and p.
func (c *Cell) commitWith(commit schema.Compiled, p *schema.Package) error {
	p.Objects.Sort()
	p.Objects.Each(func(key schema.ObjectKey, _ any) {
		p.Origins[key] = schema.Position{Path: p.Dir + "/what-if.cue", Line: 1, Column: 1}
	})
	commit.Packages = append(commit.Packages, schema.CompiledPackage{Dir: p.Dir, Package: p, Digest: schema.DigestOf(p)})
	return c.Commit(commit)
}

// Drain has machines be drained, so many at once. It errs with the first that the cell does
// not have.
func (c *Cell) Drain(names []string, atOnce int) error {
	for _, name := range names {
		if c.state().Machines[name] == nil {
			return fmt.Errorf("cell %s has no machine %q", c.state().Cell, name)
		}
	}
	commit, p := c.desired()
	// By a selector, since the repository may speak of a machine by its name already.
	p.Objects.Machines = []schema.Machine{{
		Name: "what-if", Cell: c.state().Cell, Match: "machine in (" + strings.Join(names, ",") + ")",
		Drain: &schema.Drain{AtOnce: atOnce, AtDeadline: schema.DeadlineBudget},
	}}
	return c.commitWith(commit, p)
}

// grown is what machines are called that join only to see what would be, before their number.
const grown = "grown-"

// Grow has n machines join that are like those that are up, each in turn by name, and returns
// their names. It errs if none is up.
func (c *Cell) Grow(n int) ([]string, error) {
	var like []*machine
	for _, m := range c.sorted {
		if !m.silent {
			like = append(like, m)
		}
	}
	if len(like) == 0 {
		return nil, fmt.Errorf("cell %s has no machine that is up, which others could be like", c.state().Cell)
	}
	names := make([]string, 0, n)
	for number := 1; len(names) < n; number++ {
		name := fmt.Sprintf("%s%d", grown, number)
		if c.state().Machines[name] != nil {
			continue
		}
		info := like[len(names)%len(like)].report.Machine
		info.Name, info.Boot, info.ID, info.Shares = name, "planned", "", ""
		if info.Address != "" { // of 198.18.0.0/15, which is for tests (RFC 2544)
			info.Address = netip.AddrFrom4([4]byte{198, 18 + byte(number>>16&1), byte(number >> 8), byte(number)}).String()
		}
		if info.Attributes = maps.Clone(info.Attributes); info.Attributes["hostname"] != "" {
			info.Attributes["hostname"] = name
		}
		if err := c.Add(info); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// Fit is how many more tasks of a job have room. Field names are stable.
type Fit struct {
	Version int    `json:"version"` // as that of Outcome
	Job     string `json:"job"`
	Has     int    `json:"has"`  // tasks that it is to have now
	More    int    `json:"more"` // that have room beside what runs, without a preemption
	// Racks says on which racks they would be: by the attribute rack of machines, "" of those
	// without.
	Racks map[string]int `json:"racks"`
	// Next says why one more has no room; "" if as many fit as a job may have.
	Next string `json:"next,omitempty"`
}

// fitStep is how many tasks are asked for at once.
const fitStep = 1000

// Fit returns how many more tasks of a job, user/job, have room: whatever its quota is, and with
// no task making room. It errs if the cell has no such job. The Cell is of no further use.
func (c *Cell) Fit(job string) (*Fit, error) {
	name, err := schema.ParseJobName(c.state().Cell + "/" + job)
	if err != nil {
		return nil, err
	}
	d, ok := intent.Of(c.state()).Jobs[name]
	if !ok || d.Job.Kind == schema.System {
		return nil, fmt.Errorf("cell %s has no job %q whose number of tasks may grow", c.state().Cell, job)
	}
	f := &Fit{Version: Version, Job: job, Has: d.Job.Tasks, Racks: map[string]int{}}
	g := growth{name, c.instead()}
	c.master.NoPreempt()
	for more := fitStep; ; more += fitStep {
		want := min(d.Job.Tasks+more, schema.MaxTasks)
		if err := c.grow(g, want); err != nil {
			return nil, err
		}
		f.More, f.Next, f.Racks = c.placed(name, d.Job.Tasks)
		if f.More < want-d.Job.Tasks || want == schema.MaxTasks {
			return f, nil
		}
	}
}

// growth is a job that grows whatever its quota is, while quota goes on to bind the others.
type growth struct {
	name schema.JobName
	// instead are the jobs that quota does not admit, with what they run instead: nil where
	// that is nothing.
	instead map[schema.JobName]*schema.Job
}

// instead returns growth.instead of the cell as it is.
func (c *Cell) instead() map[schema.JobName]*schema.Job {
	desired := intent.Of(c.state())
	verdict, _ := quota.Question{State: c.state(), Desired: desired, Records: intent.Stored(c.state()), Now: c.now}.Verdict()
	runs, out := c.state().AdmittedData(), map[schema.JobName]*schema.Job{}
	for name := range verdict.Rejected {
		out[name] = runs[name]
	}
	return out
}

// of returns the package with so many tasks of the job. One that has places together or not at
// all is asked for task by task. Of what is not admitted there is as much as there is without
// that: no task of it has room.
func (g *growth) of(in *schema.Package, tasks int) *schema.Package {
	next := *in
	next.Objects.Jobs, next.Objects.AllocSets = nil, slices.Clone(in.Objects.AllocSets)
	for i := range in.Objects.Jobs {
		j := in.Objects.Jobs[i]
		is, held := g.instead[j.ID()]
		switch {
		case j.ID() == g.name:
			j.Tasks, j.Together, j.Gang = tasks, false, ""
		case held && is != nil:
			j = *is
		case held && j.Kind == schema.System: // it has no number of tasks
			continue
		case held:
			j.Tasks = 0 // others may name it
		}
		next.Objects.Jobs = append(next.Objects.Jobs, j)
	}
	for i := range next.Objects.AllocSets {
		set := &next.Objects.AllocSets[i]
		if is, held := g.instead[set.ID()]; held {
			if set.Allocs = 0; is != nil {
				set.Allocs = is.Tasks
			}
		}
	}
	return &next
}

// grow has a job have so many tasks that make no room for themselves, and follows the cell until
// they are placed as far as they are.
func (c *Cell) grow(g growth, tasks int) error {
	commit, p := c.desired()
	cell := schema.Cell{Name: c.state().Cell}
	for i := range commit.Packages {
		in := commit.Packages[i].Package
		next := g.of(in, tasks)
		next.Objects.Cells = nil
		for j := range in.Objects.Cells {
			if in.Objects.Cells[j].Name == cell.Name {
				cell = in.Objects.Cells[j]
			} else {
				next.Objects.Cells = append(next.Objects.Cells, in.Objects.Cells[j])
			}
		}
		commit.Packages[i].Package, commit.Packages[i].Digest = next, schema.DigestOf(next)
	}
	cell.Quota = "off"
	p.Objects.Cells = append(p.Objects.Cells, cell)
	if err := c.commitWith(commit, p); err != nil {
		return err
	}
	return c.round() // all that fit are placed in one
}

// placed returns how many tasks of a job from an index on have a machine without a preemption,
// where, and why one has none.
func (c *Cell) placed(name schema.JobName, from int) (n int, next string, racks map[string]int) {
	racks = map[string]int{}
	for t := range c.describe().Tasks() {
		task, err := schema.ParseTaskName(c.state().Cell + "/" + t.Name)
		if err != nil || task.JobName != name || task.Index < from {
			continue
		}
		if t.Machine == "" {
			if next == "" {
				next = t.Reason
			}
			continue
		}
		n++
		racks[c.state().Machines[t.Machine].Attributes["rack"]]++
	}
	return n, next, racks
}
