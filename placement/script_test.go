package placement_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/schema"
)

// story is the cell that a script describes. Sizes are in cores and in any
// unit of RAM and disk.
type story struct {
	machines map[string]placement.Machine
	snapshot *placement.Snapshot
	options  placement.Options
	asks     []placement.Ask
	budgets  map[schema.JobName]int
	ends     map[schema.TaskName]time.Time
	protects int // how often protect was said
}

// noon is when scripts begin; a line "time 10m" says that it is 10 minutes later.
var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// The commands: machine, task, ask (also inside place), place, explain,
// verdict, eligible, claim, coming (a claim of a task that moves), uneven (for an ask
// whose task is on a machine, which does not hold it), and on a machine fail, recover, drain, undrain,
// cordon, uncordon and remove; gone ends
// a task, budget bounds the disruption of a job, protect says which have none evicted, options sets some, cell
// begins a new cell.
//
// The scripts peers-* are the tables of other schedulers' tests; what is decided otherwise than there
// is marked with "differs", and docs/decisions/0051-what-peers-decide-otherwise.md says why.
func TestScripts(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/script", func(t *testing.T, path string) {
		s := newStory()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out, err := s.run(d)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			return out
		})
	})
}

func newStory() *story {
	return &story{machines: map[string]placement.Machine{}, snapshot: placement.NewSnapshot(nil, nil), budgets: map[schema.JobName]int{}, ends: map[schema.TaskName]time.Time{}}
}

func (s *story) run(d *datadriven.TestData) (string, error) {
	if d.Cmd == "cell" {
		*s = *newStory()
	}
	for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
		if line == "" {
			continue
		}
		if err := s.line(strings.Fields(line)); err != nil {
			return "", fmt.Errorf("%s: %w", line, err)
		}
	}
	switch d.Cmd {
	case "cell", "then":
		return "", nil
	case "place":
		out := placement.Place(s.snapshot, s.asks, 1)
		s.asks = nil
		return describe(out), nil
	case "explain":
		return describeWhy(s.snapshot.Explain(s.take())), nil
	case "verdict":
		a := s.take()
		var b strings.Builder
		for _, name := range sortedKeys(s.machines) {
			v, _ := s.snapshot.Verdict(a, name)
			if v.Reason == "" {
				v.Reason = "has room"
			}
			fmt.Fprintf(&b, "%s: %s", name, v.Reason)
			if v.Fails != nil {
				fmt.Fprintf(&b, ": %s", strings.Join(v.Fails, ", "))
			}
			fmt.Fprintln(&b)
		}
		return b.String(), nil
	case "claim":
		return s.claim(d)
	case "coming":
		return fmt.Sprintf("%t\n", s.snapshot.ClaimMove(s.take(), d.CmdArgs[0].Key, nil)), nil
	case "uneven":
		u, ok := s.snapshot.Uneven(s.take(), d.CmdArgs[0].Key)
		if !ok {
			return "as good as can be\n", nil
		}
		return fmt.Sprintf("%s: from %s with %d to %s with %d, on %s\n", u.Attribute, u.From, u.FromTasks, u.To, u.ToTasks, u.Machine), nil
	case "eligible":
		return strings.Join(s.snapshot.Eligible(s.take()), " ") + "\n", nil
	}
	return "", fmt.Errorf("no command %q", d.Cmd)
}

// claim holds the machine that is its first argument for an ask, as the tasks
// that are the others leave it.
func (s *story) claim(d *datadriven.TestData) (string, error) {
	var leaving []placement.Victim
	for _, a := range d.CmdArgs[1:] {
		name, err := schema.ParseTaskName("c/" + a.Key)
		if err != nil {
			return "", err
		}
		leaving = append(leaving, placement.Victim{Name: name})
	}
	return fmt.Sprintf("%t\n", s.snapshot.Claim(s.take(), d.CmdArgs[0].Key, leaving, true)), nil
}

func (s *story) take() placement.Ask {
	a := s.asks[0]
	s.asks = nil
	return a
}

func sortedKeys[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func (s *story) line(f []string) error {
	switch f[0] {
	case "machine":
		return s.machine(f[1], f[2:])
	case "fail", "recover", "drain", "undrain", "cordon", "uncordon":
		m, ok := s.machines[f[1]]
		if !ok {
			return fmt.Errorf("no machine %s", f[1])
		}
		m.Up = f[0] == "recover" || f[0] != "fail" && m.Up
		m.Draining = f[0] == "drain" || f[0] != "undrain" && m.Draining
		m.Cordoned = f[0] == "cordon" || f[0] != "uncordon" && m.Cordoned
		s.machines[f[1]] = m
		s.snapshot.SetMachine(m)
	case "condition": // MACHINE [KIND...]: those it has from now on
		m, ok := s.machines[f[1]]
		if !ok {
			return fmt.Errorf("no machine %s", f[1])
		}
		m.Conditions = nil
		for _, k := range f[2:] {
			m.Conditions = append(m.Conditions, schema.ConditionKind(k))
		}
		s.machines[f[1]] = m
		s.snapshot.SetMachine(m)
	case "remove":
		delete(s.machines, f[1])
		s.snapshot.RemoveMachine(f[1])
	case "gone":
		name, err := schema.ParseTaskName("c/" + f[1])
		if err != nil {
			return err
		}
		s.snapshot.RemoveTask(name, f[2], 0)
	case "budget":
		name, err := schema.ParseJobName("c/" + f[1])
		if err != nil {
			return err
		}
		s.budgets[name] = number(f[2])
		s.snapshot.SetBudgets(budgetsOf(s.budgets))
	case "protect": // JOB...: those whose tasks are not evicted from now on
		s.protect(f[1:])
	case "time":
		since, err := time.ParseDuration(f[1])
		s.snapshot.SetTimes(noon.Add(since), func(task schema.TaskName) time.Time { return s.ends[task] })
		return err
	case "options":
		for _, o := range f[1:] {
			k, v, _ := strings.Cut(o, "=")
			switch k {
			case "preempt":
				s.options.Preempt = true
			case "graceful":
				s.options.Graceful = true
			case "policy":
				s.options.Policy = placement.Policy(v)
			case "spread":
				s.options.Spread = v
			}
		}
		s.snapshot.Configure(s.options)
	case "task", "ask":
		return s.tasks(f)
	default:
		return fmt.Errorf("no such line")
	}
	return nil
}

func (s *story) protect(jobs []string) {
	s.protects++
	s.snapshot.SetProtected(s.protects, func(job schema.JobName) bool { return slices.Contains(jobs, job.Short()) })
}

func (s *story) machine(name string, f []string) error {
	m := placement.Machine{
		Name: name, Up: true, Attributes: map[string]string{},
		Capacity: schema.Resources{CPUMilli: 4000, RAMBytes: 8, DiskBytes: 100}, Ports: schema.PortRange{First: 7000, Last: 7003},
	}
	for _, o := range f {
		k, v, _ := strings.Cut(o, "=")
		switch k {
		case "cpu":
			m.Capacity.CPUMilli = int64(number(v)) * 1000
		case "ram":
			m.Capacity.RAMBytes = int64(number(v))
		case "disk":
			m.Capacity.DiskBytes = int64(number(v))
		case "ports":
			m.Ports.Last = m.Ports.First + number(v) - 1
		case "busy":
			for _, p := range strings.Split(v, ",") {
				m.BusyPorts = append(m.BusyPorts, number(p))
			}
		case "gpu": // gpu=T4:2, gpu=A100:4:memory=80Gi:link=a
			parts := strings.Split(v, ":")
			d := placement.Device{Kind: "gpu", Model: parts[0], Count: number(parts[1]), Attributes: map[string]string{}}
			for _, p := range parts[2:] {
				key, value, _ := strings.Cut(p, "=")
				d.Attributes[key] = value
			}
			m.Devices = append(m.Devices, d)
		case "overloaded":
			m.Overloaded = true
		case "taint": // KEY:VALUE:USER,…
			parts := append(strings.Split(v, ":"), "", "")
			x := placement.Taint{Key: parts[0], Value: parts[1]}
			if parts[2] != "" {
				x.Users = strings.Split(parts[2], ",")
			}
			m.Taints = append(m.Taints, x)
		case "packages":
			m.Packages = strings.Split(v, ",")
		default:
			m.Attributes[k] = v
		}
	}
	s.machines[name] = m
	s.snapshot.SetMachine(m)
	return nil
}

// tasks reads "ask user/job/0 …" or "ask user/job x3 …" for three of them.
func (s *story) tasks(f []string) error {
	from, n := 0, 1
	job := f[1]
	if parts := strings.Split(f[1], "/"); len(parts) == 3 {
		job, from = parts[0]+"/"+parts[1], number(parts[2])
	}
	if len(f) > 2 && strings.HasPrefix(f[2], "x") {
		n = number(f[2][1:])
	}
	name, err := schema.ParseJobName("c/" + job)
	if err != nil {
		return err
	}
	a := placement.Ask{Priority: 100, Limit: schema.Resources{CPUMilli: 1000, RAMBytes: 1}}
	h := placement.Task{}
	for _, o := range f[2:] {
		if err := option(&a, &h, o); err != nil {
			return err
		}
	}
	for i := range n {
		a := a
		a.Name = name.Task(from + i)
		if f[0] == "ask" {
			s.asks = append(s.asks, a)
			continue
		}
		h := h
		if a.Lasts > 0 { // since the script began
			s.ends[a.Name] = noon.Add(a.Lasts)
		}
		h.Name, h.Priority, h.Limit, h.IsAlloc = a.Name, a.Priority, a.Limit, a.IsAlloc
		if !h.Stopping {
			h.Ask = &a
		}
		s.snapshot.SetTask(h)
	}
	return nil
}

// gpuAsk reads 2, or 300m, or 1:T4|A10, or 2::memory~>=~40Gi:same=link.
func gpuAsk(v string) placement.DeviceAsk {
	amount, rest, _ := strings.Cut(v, ":")
	parts := strings.Split(rest, ":")
	models := parts[0]
	g := placement.DeviceAsk{Kind: "gpu", Count: 1}
	if milli, ok := strings.CutSuffix(amount, "m"); ok {
		g.Milli = number(milli)
	} else {
		g.Count = number(amount)
	}
	if models != "" {
		g.Models = strings.Split(models, "|")
	}
	for _, p := range parts[1:] {
		if same, ok := strings.CutPrefix(p, "same="); ok {
			g.Same = same
			continue
		}
		words := strings.SplitN(p, "~", 3)
		g.Constraints = append(g.Constraints, placement.Constraint{Attribute: words[0], Op: placement.Op(words[1]), Values: words[2:]})
	}
	return g
}

func option(a *placement.Ask, h *placement.Task, o string) error {
	k, v, _ := strings.Cut(o, "=")
	switch k {
	case "at":
		h.Machine = v
	case "stopping":
		h.Stopping = true
	case "age": // how long before noon it came to its machine
		l, err := time.ParseDuration(v)
		h.Since = noon.Add(-l)
		return err
	case "uses": // the reservation: cores,ram
		cpu, ram, _ := strings.Cut(v, ",")
		h.Reservation = schema.Resources{CPUMilli: int64(number(cpu)) * 1000, RAMBytes: int64(number(ram))}
	case "port":
		h.Ports = schema.PortsOf(map[string]int{"p": number(v)})
	case "gpus": // index:milli, once for each
		index, milli, _ := strings.Cut(v, ":")
		h.Devices = append(h.Devices, placement.DeviceUse{Kind: "gpu", Index: number(index), Milli: number(milli)})
	case "prio":
		a.Priority = schema.Priority(number(v))
	case "cpu":
		a.Limit.CPUMilli = int64(number(v)) * 1000
	case "ram":
		a.Limit.RAMBytes = int64(number(v))
	case "disk":
		a.Limit.DiskBytes = int64(number(v))
	case "ports":
		for _, name := range strings.Split(v, ",") { // http, or http:8080
			name, digits, asks := strings.Cut(name, ":")
			a.Ports = append(a.Ports, name)
			if asks {
				if a.PortNumbers == nil {
					a.PortNumbers = map[string]int{}
				}
				a.PortNumbers[name] = number(digits)
			}
		}
	case "gpu":
		a.Devices = append(a.Devices, gpuAsk(v))
	case "first": // once for each alternative: first=1:A100, or first=- for none
		var all []placement.DeviceAsk
		if v != "-" {
			all = append(all, gpuAsk(v))
		}
		a.FirstOf = append(a.FirstOf, all)
	case "returns":
		a.Returns = true
	case "together":
		a.Together = number(v)
	case "gang": // of a task its name, of an ask train:a=2,b=3, of its user
		name, jobs, _ := strings.Cut(v, ":")
		if h.Gang = name; jobs != "" {
			a.Gang = &placement.Gang{Name: name}
			for _, job := range strings.Split(jobs, ",") {
				job, n, _ := strings.Cut(job, "=")
				a.Gang.Jobs = append(a.Gang.Jobs, placement.GangJob{Job: schema.JobName{Cell: "c", User: "u", Job: job}, Tasks: number(n)})
			}
		}
	case "tolerates": // KEY:VALUE
		key, value, _ := strings.Cut(v, ":")
		a.Tolerations = append(a.Tolerations, placement.Toleration{Key: key, Value: value})
	case "prefer":
		a.Prefer = v
	case "last":
		a.Last = v
	case "noisy": // noisy=u/x,u/y: jobs to be apart from
		for _, text := range strings.Split(v, ",") {
			user, job, _ := strings.Cut(text, "/")
			a.Apart = append(a.Apart, schema.JobName{Cell: "c", User: user, Job: job})
		}
	case "avoid":
		a.Avoid = strings.Split(v, ",")
	case "on":
		a.On = v
	case "max": // max=rack:1
		attribute, most, _ := strings.Cut(v, ":")
		a.PerDomain = append(a.PerDomain, placement.DomainLimit{Attribute: attribute, Max: number(most)})
	case "skew": // skew=rack:1, skew=rack:1:3 for three domains at least
		parts := append(strings.Split(v, ":"), "0")
		a.MaxSkew = append(a.MaxSkew, placement.SkewLimit{Attribute: parts[0], Max: number(parts[1]), MinDomains: number(parts[2])})
	case "spread":
		a.Spread = v
	case "then": // spread=zone then=rack
		a.Then = v
	case "targets": // targets=z1:5,z2:3
		for _, t := range strings.Split(v, ",") {
			value, n, _ := strings.Cut(t, ":")
			a.Targets = append(a.Targets, placement.Target{Value: value, Tasks: number(n)})
		}
	case "packages":
		a.Packages = strings.Split(v, ",")
	case "alloc":
		a.IsAlloc = true
	case "in": // user/set: the alloc set; of a held task user/set/0
		if job, err := schema.ParseJobName("c/" + v); err == nil {
			a.AllocSet = job
			return nil
		}
		name, err := schema.ParseTaskName("c/" + v)
		h.Alloc, a.AllocSet = name, name.JobName
		return err
	case "only": // user/set/0
		name, err := schema.ParseTaskName("c/" + v)
		a.Alloc = name
		return err
	case "share": // at most so many of the job in one alloc
		a.AllocMax = number(v)
	case "labels": // labels=tier:front,app:web
		relations(a).Labels = map[string]string{}
		for _, l := range strings.Split(v, ",") {
			key, value, _ := strings.Cut(l, ":")
			a.Relations.Labels[key] = value
		}
	case "near", "apart": // near=SELECTOR, with @ATTRIBUTE, with :WEIGHT
		f, err := affinity(v)
		if r := relations(a); k == "near" {
			r.Affinity = append(r.Affinity, f)
		} else {
			r.AntiAffinity = append(r.AntiAffinity, f)
		}
		return err
	case "of": // of=u: what near and apart before it pick is of this user only
		for _, list := range [][]placement.Affinity{relations(a).Affinity, relations(a).AntiAffinity} {
			for i := range list {
				list[i].User = v
			}
		}
	case "lasts":
		l, err := time.ParseDuration(v)
		a.Lasts = l
		return err
	case "held": // held=MACHINE, with :UNTIL
		machine, until, some := strings.Cut(v, ":")
		if a.Held = machine; some {
			l, err := time.ParseDuration(until)
			a.HeldUntil = noon.Add(l)
			return err
		}
	case "waited":
		w, err := time.ParseDuration(v)
		a.Waited = w
		return err
	case "any": // any=rack:in:a,b|zone:in:z1&disk:in:ssd
		for _, all := range strings.Split(v, "|") {
			var list []placement.Constraint
			for _, one := range strings.Split(all, "&") {
				parts := append(strings.SplitN(one, ":", 3), "")
				list = append(list, placement.Constraint{Attribute: parts[0], Op: placement.Op(parts[1]), Values: strings.Split(parts[2], ",")})
			}
			a.AnyOf = append(a.AnyOf, list)
		}
	case "where", "wish": // where=rack:in:a,b
		parts := strings.SplitN(v, ":", 4)
		c := placement.Constraint{Attribute: parts[0], Op: placement.Op(parts[1])}
		if len(parts) > 2 {
			c.Values = strings.Split(parts[2], ",")
		}
		if k == "where" {
			a.Constraints = append(a.Constraints, c)
		} else {
			a.Preferences = append(a.Preferences, placement.Preference{Constraint: c, Weight: number(parts[3])})
		}
	default:
		if !strings.HasPrefix(k, "x") {
			return fmt.Errorf("no option %q", k)
		}
	}
	return nil
}

func relations(a *placement.Ask) *placement.Relations {
	if a.Relations == nil {
		a.Relations = &placement.Relations{}
	}
	return a.Relations
}

// affinity reads SELECTOR[@ATTRIBUTE][:WEIGHT], with ~ for a blank.
func affinity(v string) (placement.Affinity, error) {
	v, weight, preferred := strings.Cut(v, ":")
	text, by, some := strings.Cut(v, "@")
	if !some {
		by = placement.MachineAttribute
	}
	selector, err := schema.ParseSelector(strings.ReplaceAll(text, "~", " "))
	a := placement.Affinity{Selector: selector, By: by}
	if preferred {
		a.Weight = number(weight)
	}
	return a, err
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(fmt.Sprintf("%q is no number", s))
	}
	return n
}

func describe(out []placement.Decision) string {
	var b strings.Builder
	for _, d := range out {
		fmt.Fprint(&b, d.Name.Short())
		if d.Evicted {
			fmt.Fprint(&b, " again")
		}
		if d.Machine == "" {
			fmt.Fprint(&b, " pending")
			if d.Why.Held != "" {
				fmt.Fprint(&b, ", holds ", d.Why.Held)
				if !d.Why.Room.IsZero() {
					fmt.Fprint(&b, " until ", d.Why.Room.Sub(noon))
				}
			}
			fmt.Fprint(&b, "\n", indent(describeWhy(d.Why)))
			continue
		}
		fmt.Fprint(&b, " on ", d.Machine)
		for _, p := range d.Ports {
			fmt.Fprint(&b, " ", p.Name, "=", p.Port)
		}
		for _, u := range d.Devices {
			fmt.Fprintf(&b, " %s%d:%d", u.Kind, u.Index, u.Milli)
		}
		if d.Alloc != (schema.TaskName{}) {
			fmt.Fprint(&b, " in ", d.Alloc.Short())
		}
		if d.Later {
			fmt.Fprint(&b, " later")
		}
		for _, v := range d.Victims {
			fmt.Fprintf(&b, " evicts %s (%d)", v.Name.Short(), v.Priority)
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}

func describeWhy(w placement.Why) string {
	var b strings.Builder
	if w.Together > 0 {
		gang, _, _ := strings.Cut(w.String(), ";")
		fmt.Fprintln(&b, gang)
	}
	fmt.Fprintf(&b, "%d machines, %d with room\n", w.Machines, w.Feasible)
	for _, r := range w.Refused {
		fmt.Fprintf(&b, "%s\n", r.Reason.Of(r.Machines))
	}
	if w.Protected > 0 {
		fmt.Fprintln(&b, w.Protected, "may not be preempted")
	}
	if w.Change != nil {
		fmt.Fprintln(&b, w.Change)
	}
	return b.String()
}

func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(s, "\n"), "\n", "\n  ") + "\n"
}
