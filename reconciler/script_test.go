package reconciler_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// TestScripts plays the stories of testdata/script. See play for the commands.
func TestScripts(t *testing.T) {
	t.Parallel()
	datadriven.Walk(t, "testdata/script", func(t *testing.T, path string) {
		t.Parallel()
		c := newCell()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			return c.play(t, d)
		})
	})
}

// play does one command of a script and returns what came of it:
//
//	commit ID        adopts a commit: a line "DIR bad" is a package that does
//	                 not compile; other lines are "DIR KIND NAME FIELD=VALUE…";
//	                 allow=N tasks may go, promote=USER/JOB goes on;
//	                 by=NAME subject=(TEXT) is whose it is
//	join NAME …      machines of 4 cores and 8 GiB, or cores=N gib=N; gpus=N are
//	                 devices, all else is an attribute
//	                 id=ID is what their agents call themselves, with -NAME
//	rival NAME ID [boot=B] [answers]  another agent connects that says it is NAME
//	forget NAME REASON [linked]  by anna
//	await DUR        how long more machines are waited for when one joins a cell
//	                 in which nothing runs
//	silent NAME …    cuts machines off; speak joins them again
//	offline NAME …   no registry answers machines; online ends that
//	hang NAME …      no task stops on machines; obey ends that
//	turn [N [DUR]]   N times: time passes (1s), machines obey and report, a step
//	step             a step without any news
//	clock DUR [seen] the master's clock is set by so much; seen: the master finds out
//	task NAME WORD   finish, port (is in use), restart (by its agent), evict
//	                 (its machine has no memory left)
//	overload NAME [TASK …]  a machine asks for tasks to be moved away
//	busy NAME PORT   a port of a machine is in use by others
//	suspend NAME REASON [for=DUR]  by anna; resume NAME
//	restart NAME REASON  by anna; cancel NAME
//	crash [N]        the master is replaced; N: by one that finds N of the documents that its
//	                 next step writes
//	status, waiting, why NAME [MACHINE]  what users see
//	data NAME        some of what a job was admitted with
//	store            the keys of the store
func (c *cell) play(t *testing.T, d *datadriven.TestData) string {
	t.Helper()
	var args []string
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 {
			args = append(args, a.Key)
		}
	}
	switch d.Cmd {
	case "commit":
		compiled := parse(t, args[0], d.Input)
		if d.HasArg("allow") {
			d.ScanArgs(t, "allow", &compiled.AllowPrune)
		}
		for _, a := range d.CmdArgs {
			switch a.Key {
			case "promote":
				compiled.Promote = a.Vals
			case "promoteNew": // and what the commit brings
				compiled.Promote, compiled.PromoteNew = a.Vals, a.Vals
			case "by":
				compiled.By.Author = a.Vals[0]
			case "subject":
				compiled.By.Subject = a.Vals[0]
			}
		}
		return lines(c.commit(compiled))
	case "join":
		return c.joins(d, args)
	case "rival":
		return c.rivals(t, d, args)
	case "forget":
		return c.forgetting(d, args)
	case "offline", "online", "silent", "speak", "hang", "obey":
		for _, name := range args {
			c.agent(name).becomes(d.Cmd)
		}
		return ""
	case "turn":
		return c.turns(t, args)
	case "step":
		return c.stepped()
	case "clock":
		by, err := time.ParseDuration(args[0])
		if err != nil {
			t.Fatal(err)
		}
		c.now = c.now.Add(by)
		c.observed.Shift(by)
		if len(args) == 1 {
			return ""
		}
		writes, events := control.SetForward(c.state, by, c.now)
		c.take(writes)
		return lines(events)
	case "task":
		c.happen(t, args[0], args[1])
		return ""
	case "overload":
		c.agent(args[0]).overloads(args[1:])
		return ""
	case "busy":
		port, _ := strconv.Atoi(args[1])
		c.agent(args[0]).busy = append(c.agent(args[0]).busy, port)
		return ""
	case "holds": // MACHINE [DIGEST...]: images and packages
		var digests []schema.Digest
		for _, d := range args[1:] {
			digests = append(digests, schema.Digest(d))
		}
		c.observed.ChangeContent(args[0], &schema.ContentChange{Whole: true, Added: digests})
		return ""
	case "condition": // MACHINE [KIND...]: those it reports from now on
		c.agent(args[0]).conditions = nil
		for _, k := range args[1:] {
			c.agent(args[0]).conditions = append(c.agent(args[0]).conditions, schema.Condition{Kind: schema.ConditionKind(k), Message: "found " + k})
		}
		return ""
	case "reclaim", "usage":
		return c.reclaims(args)
	case "suspend", "resume":
		return c.suspendOrResume(t, d, args)
	case "restart", "cancel":
		return c.restarts(t, d.Cmd, args)
	case "await": // more machines, for so long, when the first joins
		c.joinWait, _ = time.ParseDuration(args[0])
		c.observed.JoinWait = c.joinWait
		return ""
	case "crash":
		if len(args) > 0 {
			n, err := strconv.Atoi(args[0])
			if err != nil {
				t.Fatal(err)
			}
			return c.cutShort(n)
		}
		c.restart()
		return ""
	case "status":
		return summary(c.status())
	case "waiting":
		return strings.Join(c.status().Waiting, "\n") + "\n"
	case "blocked":
		return blocked(c.status())
	case "why":
		machine := ""
		if len(args) > 1 {
			machine = args[1]
		}
		e, known := status.Explain(c.described(), c.snapshot(), args[0], machine)
		return fmt.Sprintln(strings.Join(append(e.Lines(), fmt.Sprintf("known: %t", known)), "\n"))
	case "data":
		job, _ := schema.ParseJobName("c/" + args[0])
		j := c.state.Data[c.state.Jobs[job].Admitted]
		return fmt.Sprintf("priority %d, %d tasks of %s\n", j.Priority, j.Tasks, strings.Join(j.Task.Process.Command, " "))
	case "store":
		return strings.Join(slices.Sorted(maps.Keys(c.docs)), "\n") + "\n"
	}
	t.Fatalf("%s: unknown command", d.Cmd)
	return ""
}

// blocked returns what of a status a person has to act on.
func blocked(s status.Status) string {
	var b strings.Builder
	for _, x := range s.Blocked {
		fmt.Fprintf(&b, "%s %s: %s", x.Kind, x.Name, x.Next)
		if !x.Until.IsZero() {
			fmt.Fprintf(&b, " (until %s)", x.Until.Format(time.TimeOnly))
		}
		if !slices.Contains(s.Waiting, x.Message) && !slices.ContainsFunc(s.Waiting, func(w string) bool { return strings.HasPrefix(w, "job "+x.Name+": ") }) {
			fmt.Fprintf(&b, "; %q is not waited for", x.Message)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// suspendOrResume suspends or resumes.
func (c *cell) suspendOrResume(t *testing.T, d *datadriven.TestData, args []string) string {
	t.Helper()
	var err error
	if d.Cmd == "suspend" {
		var lasts time.Duration
		if d.HasArg("for") {
			var s string
			d.ScanArgs(t, "for", &s)
			if lasts, err = time.ParseDuration(s); err != nil {
				t.Fatal(err)
			}
		}
		err = c.master.Suspend(schema.Suspension{Name: args[0], Reason: strings.Join(args[1:], " "), By: "anna"}, lasts, c.now)
	} else {
		_, err = c.master.Resume(args[0], "bert", c.now)
	}
	if none := (*model.NotFoundError)(nil); errors.As(err, &none) {
		return fmt.Sprintf("error: %s\nhint: %s\n", none.Message, none.Hint)
	}
	return lines(c.carryOut())
}

// restarts asks for a restart, or for the end of one.
func (c *cell) restarts(t *testing.T, cmd string, args []string) string {
	t.Helper()
	x := schema.RestartRequest{Name: args[0], Reason: strings.Join(args[1:], " "), By: "anna"}
	ask := func() (schema.Restarting, error) { return c.master.Restart(x, c.now) }
	if cmd == "cancel" {
		ask = func() (schema.Restarting, error) { return c.master.CancelRestart(args[0], "bert", c.now) }
	}
	answer, err := ask()
	if none := (*model.NotFoundError)(nil); errors.As(err, &none) {
		return fmt.Sprintf("error: %s\nhint: %s\n", none.Message, none.Hint)
	}
	events := c.carryOut()
	if answer.Now == nil && len(answer.Was) == 0 {
		return "nothing\n"
	}
	return lines(events)
}

// cutShort has the master die after so many of the writes of its next step, and prints them.
func (c *cell) cutShort(n int) string {
	var b strings.Builder
	writes := control.Step(c.input()).Writes
	for i, w := range writes {
		if i == n {
			b.WriteString("and not:\n")
		}
		fmt.Fprintln(&b, w.Key)
	}
	c.take(writes[:n])
	c.restart()
	return b.String()
}

func (c *cell) joins(d *datadriven.TestData, names []string) string {
	cores, gib := 4, 8
	attributes := map[string]string{}
	var devices []schema.DeviceGroup
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "cores":
			cores, _ = strconv.Atoi(a.Vals[0])
		case "gib":
			gib, _ = strconv.Atoi(a.Vals[0])
		case "id":
			defer func() {
				for _, name := range names {
					c.agent(name).info.ID = a.Vals[0] + "-" + name
					c.join(name, 4, 8)
				}
			}()
		case "gpus":
			n, _ := strconv.Atoi(a.Vals[0])
			devices = append(devices, schema.DeviceGroup{Kind: "gpu", Count: n})
		case "dev":
			devices = append(devices, devicesOf(a.Vals)...)
		default:
			if len(a.Vals) > 0 {
				attributes[a.Key] = a.Vals[0]
			}
		}
	}
	var events []schema.Event
	for _, name := range names {
		events = append(events, c.join(name, int64(cores), int64(gib))...)
		if i := &c.agent(name).info; len(attributes) > 0 || len(devices) > 0 {
			i.Attributes, i.Devices = attributes, devices
			c.join(name, int64(cores), int64(gib))
		}
	}
	return lines(events)
}

// turns prints each turn in which something happened.
func (c *cell) turns(t *testing.T, args []string) string {
	t.Helper()
	n, d := 1, time.Second
	if len(args) > 0 {
		n, _ = strconv.Atoi(args[0])
	}
	if len(args) > 1 {
		var err error
		if d, err = time.ParseDuration(args[1]); err != nil {
			t.Fatal(err)
		}
	}
	var b strings.Builder
	for range n {
		c.now = c.now.Add(d)
		b.WriteString(lines(c.exchange()))
		b.WriteString(c.stepped())
	}
	return b.String()
}

// stepped steps, and prints what is new.
func (c *cell) stepped() string {
	suspended := len(c.state.Suspensions) > 0 // which an event has reported
	out := c.step()
	c.hasDecided(&out)
	for name := range out.Admission.Rejected {
		if !c.rejected[name.Short()] && !suspended {
			panic(fmt.Sprintf("job %s is rejected, and no event says so", name.Short()))
		}
	}
	var b strings.Builder
	b.WriteString(lines(out.Events))
	if len(out.Events) == 0 && len(out.Writes) > 0 {
		for _, w := range out.Writes {
			// How far a rollout is, and what nobody runs any more.
			if !strings.HasPrefix(w.Key, "job/") && !strings.HasPrefix(w.Key, "data/") {
				fmt.Fprintf(&b, "write %s\n", w.Key)
			}
		}
	}
	if b.Len() > 0 {
		return fmt.Sprintf("%s\n%s", c.now.Format("-- 15:04:05"), b.String())
	}
	return ""
}

// hasDecided panics when a step has left something to do that the next one would do at once,
// and does not ask for one.
func (c *cell) hasDecided(out *control.Output) {
	in := c.input()
	if len(out.Writes) == 0 || another(*out, in.Now) {
		return
	}
	in.Memo = nil
	if next := control.Step(in); len(next.Writes) > 0 && !onlyRebalances(*out, next) {
		panic(fmt.Sprintf("the next step writes %s, says %s, and this one, which says %s, does not ask for it", keys(next.Writes), lines(next.Events), lines(out.Events)))
	}
}

// happen is something that befalls a task.
func (c *cell) happen(t *testing.T, name, what string) {
	t.Helper()
	a, s := c.find(name)
	if s == nil {
		t.Fatalf("task %s does not run", name)
	}
	switch what {
	case "finish":
		a.die(s, schema.Cause{Kind: schema.CauseFinished, Exit: &schema.Exit{Incarnation: s.Incarnation, At: c.now}, At: c.now})
	case "fail":
		a.die(s, schema.Cause{Kind: schema.CauseFailed, Message: "exit code 1", At: c.now})
	case "port":
		a.die(s, schema.Cause{Kind: schema.CausePortInUse, Message: "port http is in use", At: c.now})
	case "refuse":
		a.die(s, schema.Cause{Kind: schema.CauseStartFailed, Message: "keep the assignment: input/output error", At: c.now})
	case "evict":
		a.die(s, schema.Cause{Kind: schema.CauseOutOfResources, Resource: schema.MachineRAM, Message: "machine memory: 1 MiB left", At: c.now})
	case "restart":
		s.Exits = append(s.Exits, schema.Exit{Incarnation: s.Incarnation, Code: -1, Signal: "SIGKILL", At: c.now})
		s.Incarnation++
		s.StartedAt = c.now
	case "anew", "withheld": // its agent has started, with the task gone, and no master
		s.Exits = append(s.Exits, schema.Exit{Incarnation: s.Incarnation, Code: -1, Signal: "SIGKILL", At: c.now})
		if s.State, s.Note, s.Withheld = schema.Waiting, schema.NoteWithheld, true; what == "anew" {
			s.State, s.Note, s.Withheld, s.Unconfirmed = schema.Running, schema.Unconfirmed, false, true
			s.Incarnation, s.StartedAt = s.Incarnation+1, c.now
		}
	default:
		t.Fatalf("task %s: %s: unknown", name, what)
	}
}

// lines prints events without their time, which is c.now.
func lines(events []schema.Event) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString(string(e.Kind))
		for _, s := range []string{e.Job, e.Machine} {
			if s != "" && s != e.Job || s != "" && e.Task == "" {
				b.WriteString(" " + s)
			} else if s != "" {
				b.WriteString(" " + e.Task)
			}
		}
		if e.Generation != 0 {
			fmt.Fprintf(&b, " #%d", e.Generation)
		}
		if e.Cause != "" {
			fmt.Fprintf(&b, " (%s)", e.Cause)
		}
		fmt.Fprintf(&b, ": %s\n", e.Message)
	}
	return b.String()
}

// summary prints a status, a line for each thing.
func summary(s status.Status) string {
	var b strings.Builder
	fmt.Fprintf(&b, "commit %s applied %s converged %t\n", s.Commit, s.Applied, s.Converged)
	for _, w := range s.Waiting {
		fmt.Fprintf(&b, "waiting: %s\n", w)
	}
	for _, n := range s.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	for _, w := range s.Warnings {
		if w.Diagnostic.Path == "" { // of all scripts: none declares its cell
			continue
		}
		fmt.Fprintf(&b, "%s: %s\n", w.Diagnostic.Severity, w.Diagnostic.Error())
	}
	for _, j := range s.Jobs {
		unknown := ""
		if j.Unknown > 0 {
			unknown = fmt.Sprintf(" unknown %d", j.Unknown)
		}
		fmt.Fprintf(&b, "job %s: desired %d running %d pending %d failed %d%s done %d updating %d %s\n", j.Name, j.Desired, j.Running, j.Pending, j.Failed, unknown, j.Done, j.Updating, j.Reason)
	}
	for i := range s.Tasks {
		t := &s.Tasks[i]
		fmt.Fprintf(&b, "task %s: %s %s #%d %s", t.Name, t.State, t.Machine, t.Generation, t.Reason)
		if t.Alloc != "" {
			fmt.Fprintf(&b, "in %s", t.Alloc)
		}
		for _, d := range t.Devices {
			fmt.Fprintf(&b, " %s%d:%d", d.Kind, d.Index, d.Milli)
		}
		b.WriteString("\n")
	}
	for _, m := range s.Machines {
		fmt.Fprintf(&b, "machine %s: %s, %d tasks, cpuMilli %d of %d", m.Name, m.Health, m.Tasks, m.Used.CPUMilli, m.Capacity.CPUMilli)
		switch {
		case m.Draining != nil:
			fmt.Fprintf(&b, ", %s", m.Draining)
			for _, w := range m.Draining.Waits[min(1, len(m.Draining.Waits)):] {
				fmt.Fprintf(&b, "; %s", w)
			}
		case m.Cordoned:
			b.WriteString(", cordoned")
		case m.Empty:
			b.WriteString(", empty")
		}
		for _, k := range m.Conditions {
			fmt.Fprintf(&b, ", %s", k.Kind)
		}
		for _, k := range slices.Sorted(maps.Keys(m.Attributes)) {
			fmt.Fprintf(&b, ", %s=%s", k, m.Attributes[k])
		}
		b.WriteString("\n")
	}
	return b.String()
}

// parse reads a commit: see play.
func parse(t *testing.T, id, input string) schema.Compiled {
	t.Helper()
	objects := map[string][]any{}
	isBad := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(input), "\n") {
		f := strings.Fields(line)
		switch {
		case len(f) == 0:
		case f[1] == "bad":
			isBad[f[0]] = true
		default:
			objects[f[0]] = append(objects[f[0]], object(t, f[1], f[2], f[3:]))
		}
	}
	c := compiled(id)
	for _, dir := range slices.Sorted(maps.Keys(objects)) {
		c.Packages = append(c.Packages, good(pkg(dir, objects[dir]...)))
	}
	for _, dir := range slices.Sorted(maps.Keys(isBad)) {
		c.Packages = append(c.Packages, bad(dir))
	}
	return c
}

// object reads one object: its fields are those of its JSON, see set.
func object(t *testing.T, kind, name string, fields []string) any {
	t.Helper()
	filled := func(o any) {
		if err := set(o, fields); err != nil {
			t.Fatalf("%s %s: %v", kind, name, err)
		}
	}
	user, _, _ := strings.Cut(name, "/")
	switch kind {
	case "service", "batch", "system":
		j := service(user, name[len(user)+1:], 1, "v")
		if j.Kind = schema.JobKind(kind); j.Kind == schema.System {
			j.Tasks = 0
		}
		if i := slices.IndexFunc(fields, func(f string) bool { return strings.HasPrefix(f, `priority="`) }); i >= 0 {
			named := strings.Trim(strings.TrimPrefix(fields[i], "priority="), `"`)
			fields = slices.Delete(fields, i, i+1)
			filled(&j)
			return namedJob{j, named}
		}
		filled(&j)
		return j
	case "allocset":
		o := schema.AllocSet{
			Name: name[len(user)+1:], User: user, Cell: "c", Priority: 200, Allocs: 1,
			Resources: schema.Resources{CPUMilli: 2000, RAMBytes: 2 << 30, DiskBytes: 2 << 30}, Update: schema.AllocUpdate{MaxParallel: 1},
		}
		filled(&o)
		return o
	case "quota":
		q := newQuota(strings.ReplaceAll(name, "/", "-"), user, 0)
		filled(&q)
		return q
	case "tenant":
		o := schema.Tenant{Name: name, Users: []string{name}}
		filled(&o)
		return o
	case "machine":
		o := schema.Machine{Name: name, Cell: "c"}
		filled(&o)
		return o
	case "priority":
		o := schema.NamedPriority{Name: name}
		filled(&o)
		return o
	case "cell":
		o := schema.Cell{Name: name, Quota: "on"}
		filled(&o)
		return o
	}
	t.Fatalf("object %s %s: unknown", kind, name)
	return nil
}

// set decodes FIELD=JSON arguments over what o has. The shorthands are those
// of jobs: arg, cpu, gib, parallel.
func set(o any, fields []string) error {
	for _, f := range fields {
		key, value, _ := strings.Cut(f, "=")
		doc := fmt.Sprintf(`{%q: %s}`, key, value)
		switch key {
		case "arg":
			doc = fmt.Sprintf(`{"task": {"process": {"command": ["serve", %q]}}}`, value)
		case "cpu":
			doc = fmt.Sprintf(`{"task": {"resources": {"cpuMilli": %s}}}`, value)
		case "where": // attribute:operator:value
			w := strings.Split(value, ":")
			doc = fmt.Sprintf(`{"constraints": [{"attribute": %q, "operator": %q, "value": %q}]}`, w[0], w[1], w[2])
		case "wish":
			w := strings.Split(value, ":")
			doc = fmt.Sprintf(`{"preferences": [{"attribute": %q, "operator": "=", "value": %q, "weight": 50}]}`, w[0], w[1])
		case "sticky":
			doc = fmt.Sprintf(`{"task": {"sticky": %s}}`, value)
		case "gpus":
			doc = fmt.Sprintf(`{"task": {"resources": {"devices": {"gpu": {"count": %s, "milli": 1000}}}}}`, value)
		case "gpuMilli":
			doc = fmt.Sprintf(`{"task": {"resources": {"devices": {"gpu": {"count": 1, "milli": %s}}}}}`, value)
		case "in":
			doc = fmt.Sprintf(`{"allocset": %q}`, value)
		case "class":
			doc = fmt.Sprintf(`{"appclass": %q}`, value)
		case "each":
			doc = fmt.Sprintf(`{"resources": {"cpuMilli": %s}}`, value)
		case "canary": // tasks:wait:promote
			w := strings.Split(value, ":")
			doc = fmt.Sprintf(`{"update": {"canary": {"tasks": %s, "waitSeconds": %s, "promote": %q}}}`, w[0], w[1], w[2])
		case "progress":
			doc = fmt.Sprintf(`{"update": {"progressDeadlineSeconds": %s}}`, value)
		case "failure":
			doc = fmt.Sprintf(`{"update": {"onFailure": %q}}`, value)
		case "health":
			doc = fmt.Sprintf(`{"update": {"minHealthySeconds": %s}}`, value)
		case "parallel":
			doc = fmt.Sprintf(`{"update": {"maxParallel": %s}}`, value)
		}
		if err := json.Unmarshal([]byte(doc), o); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
	}
	return nil
}
