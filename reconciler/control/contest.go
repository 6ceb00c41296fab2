package control

import (
	"fmt"
	"slices"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Contest says whether an agent that connects may have the name that it gives, as
// far as another one has it, or may still run what was assigned to that. The one
// that came first keeps the name; an agent is the same as before if it has the same
// id. in has no need of Seed and Memo.
//
// It errs with a *schema.TakenError when the name is another's, and with another
// error if that is not known yet. With replaces the name is free once the machine
// that had it is forgotten: it is lost, and all its tasks may be given to others.
func Contest(in Input, info *schema.MachineInfo) (replaces bool, err error) {
	r := in.State.Machines[info.Name]
	switch {
	case info.ID != "" && (r == nil || r.ID != info.ID) && in.elsewhere(info) != nil:
		return false, copied(in.elsewhere(info), info)
	case r == nil:
		return false, nil
	case r.Forgotten != nil:
		return false, fmt.Errorf("machine %s is being %s: its last tasks are given up first", r.Name, r.Forgotten)
	case info.Link.Answers:
		return false, answers(r, info)
	case r.ID == "" || info.ID == "": // of an earlier release
		return false, nil
	case r.ID == info.ID:
		return false, nil // also with another boot: it has restarted
	}
	return in.replaces(r, info)
}

// elsewhere returns the machine with another name that is up and has the id of an
// agent that connects, nil if there is none.
func (in *Input) elsewhere(info *schema.MachineInfo) *schema.MachineRecord {
	for _, name := range in.State.MachinesWithID(info.ID) {
		r := in.State.Machines[name]
		if name == info.Name {
			continue
		}
		if health, _ := in.Observed.HealthOf(r, in.Now); health == model.HealthUp {
			return r
		}
	}
	return nil
}

// aCopy is what to do with an agent whose state directory is another's.
const aCopy = "stop this agent, remove its state directory, and start it again with a name that no other machine has. An image from which machines are made must have no state directory in it"

// copied says that an agent has the id of another machine.
func copied(r *schema.MachineRecord, info *schema.MachineInfo) *schema.TakenError {
	return &schema.TakenError{
		Machine: info.Name, Holder: r.Name, Here: schema.PlaceOf(info), There: model.PlaceOf(r), Hint: aCopy,
		Why: fmt.Sprintf("its id is that of machine %s, which is up: the state directory of one is a copy of the other's", r.Name),
	}
}

// answers says that another agent has the name, is there, and answers.
func answers(r *schema.MachineRecord, info *schema.MachineInfo) *schema.TakenError {
	e := &schema.TakenError{Machine: r.Name, Holder: r.Name, Here: schema.PlaceOf(info), There: model.PlaceOf(r), Why: "the other one is connected"}
	e.Hint = fmt.Sprintf("give one of the two another name with --name. If this one is the machine, stop the other agent: this one gets the name by itself once %[1]s is lost and its tasks may be rescheduled, or at once after `muster machine forget %[1]s --reason WHY`", r.Name)
	if r.ID != "" && r.ID == info.ID {
		e.Why = "the other one is connected, and has the same id: the state directory of one is a copy of the other's"
		e.Hint = aCopy
	}
	return e
}

// replaces reports whether the name of a machine is free for one with another id,
// and errs if it is not.
func (in *Input) replaces(r *schema.MachineRecord, info *schema.MachineInfo) (bool, error) {
	e := &schema.TakenError{Machine: r.Name, Holder: r.Name, Here: schema.PlaceOf(info), There: model.PlaceOf(r)}
	forget := fmt.Sprintf("`muster machine forget %s --reason WHY`", r.Name)
	health, lost := in.Observed.HealthOf(r, in.Now)
	if health != model.HealthLost {
		if health == model.HealthUp {
			lost = in.Now.Add(in.Observed.LostAfter)
		}
		e.Why = "the other one is not connected, and may still run tasks"
		e.Hint = fmt.Sprintf("it has the name by itself when the other one has said nothing until %s. If that is gone for good, and this is the machine now, %s gives it the name at once", facts.Clock{Now: in.Now}.Say(lost), forget)
		return false, e
	}
	waits := in.waitingTasks(r.Name)
	if len(waits) == 0 {
		return true, nil
	}
	e.Why = fmt.Sprintf("the other one is lost, and %s of it %s for it: %s", schema.Count(len(waits), "task"), schema.Verb(len(waits), "waits", "wait"), schema.ShortList(waits))
	e.Hint = fmt.Sprintf("bring the other one back. If that is gone for good, %s reschedules its tasks, and gives this one the name", forget)
	return false, e
}

// waitingTasks returns the tasks of a lost machine that may not be given to others
// yet, by what their jobs say of silence.
func (in *Input) waitingTasks(machine string) []string {
	due, _ := facts.New(facts.Stored(in.State), in.desired(), in.Observed, in.Now, nil).DueTasks()
	var waits []string
	for i := range due {
		if d := &due[i]; d.On.Name == machine && d.Why == "" && !d.Free {
			waits = append(waits, d.Name.Short())
		}
	}
	slices.Sort(waits)
	return waits
}

// ForgetChange is what a request to forget a machine comes to: what to answer, and what
// to store and report.
type ForgetChange struct {
	Answer schema.Forgetting
	Writes []model.Write
	Events []schema.Event
}

// Forget returns what has a machine forgotten whose agent is not connected: with the
// step that follows its tasks are given up, whatever they are, and when it has none
// any more it is out of the state. It errs with NotFoundError if there is no such
// machine, and with an error that says what to do if linked says that it is there.
func Forget(s *model.State, name string, x schema.Forgotten, linked bool) (ForgetChange, error) {
	r := s.Machines[name]
	if r == nil {
		return ForgetChange{}, model.NotFound(fmt.Sprintf("cell %s has no machine %q", s.Cell, name), "muster status lists the machines")
	}
	if linked {
		return ForgetChange{}, &LinkedError{name, model.PlaceOf(r)}
	}
	answer := schema.Forgetting{Machine: name, Place: model.PlaceOf(r), Tasks: []string{}, NeverTwice: []string{}}
	for _, key := range s.ChunkNames() {
		for i := range s.Chunks[key].Tasks {
			t := &s.Chunks[key].Tasks[i]
			if t.Machine != name {
				continue
			}
			task := key.Job.Task(t.Index).Short()
			answer.Tasks = append(answer.Tasks, task)
			if s.Data[t.Data].NeverTwice() {
				answer.NeverTwice = append(answer.NeverTwice, task)
			}
		}
	}
	next := *r
	next.Forgotten = &x
	e := schema.Event{At: x.At, Kind: schema.EventMachine, Machine: name, Message: fmt.Sprintf("%s; it was %s; %s given up", &x, answer.Place, schema.Count(len(answer.Tasks), "task")), Input: &schema.EventInput{Forget: &x}}
	return ForgetChange{answer, []model.Write{s.Document(model.KeyMachine+name, &next)}, []schema.Event{e}}, nil
}

// LinkedError refuses to forget a machine that is there.
type LinkedError struct {
	Machine string
	Place   schema.Place
}

func (e *LinkedError) Error() string {
	return fmt.Sprintf("machine %s is connected (%s): it would join again at once", e.Machine, e.Place)
}

// Hint says what to do.
func (e *LinkedError) Hint() string {
	return "stop its agent first: with SIGINT that ends its tasks, with SIGTERM they run on. To empty a machine, commit a machine object with drain"
}
