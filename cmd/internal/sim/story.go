package sim

import (
	"fmt"
	"regexp"
	"strings"
)

// phrases say what an action does, by its kind: %m is its machine, %j its job, %n
// its number. What has none is written as its name.
var phrases = map[ActionKind]string{
	Wait:          "nothing is done",
	"scale":       "somebody commits that %j has another number of tasks (%n)",
	"revert":      "somebody commits the version of %j before that (%n)",
	"version":     "somebody commits another version of %j (%n)",
	"priority":    "somebody commits another priority of %j (%n)",
	"remove":      "somebody commits that %j is gone",
	"break":       "somebody commits what does not compile, in the package of %j",
	"fix":         "somebody commits a package of %j that compiles",
	"delete":      "somebody commits that the directory of %j is gone",
	"suspend":     "somebody suspends a job that runs, or all (job %j, %n)",
	"restart":     "somebody restarts a job, or a task, or ends that (job %j, %n)",
	"resume":      "somebody resumes what is suspended (%n)",
	"cordon":      "somebody commits that %m is cordoned, or no longer",
	"drain":       "somebody commits that %m, or its rack, is drained, or no longer (%n)",
	"back":        "somebody commits that a machine which speaks is not gone (%n)",
	"gone":        "somebody commits that %m, or one that is silent, is gone, or no longer (%n)",
	"promote":     "somebody commits that the rollout of %j, or of all with a canary, goes on (%n)",
	"steal":       "somebody commits a job of another owner in the directory of %j",
	"delete-rest": "somebody deletes all but the directory of %j, by mistake",
	"storm":       "somebody commits many times at once (%n)",
	"rewind":      "somebody pushes an older commit (%n)",
	"quota":       "somebody commits another quota of the owner of %j (%n)",
	"transfer":    "somebody commits that one job of the owner of %j makes room for another (%n)",
	"relabel":     "somebody commits another label of %m (%n)",
	"remove-set":  "somebody commits that the alloc set of the owner of %j, or what runs in it, is gone or back (%n)",
	"forget":      "somebody has %m, or one that is silent, forgotten (%n)",

	"kill-master":   "the master is killed",
	"freeze-master": "the master is stopped, and another takes its place (%n)",
	"stop-master":   "the master is stopped for a while (%n)",
	"set-clock":     "somebody sets the clock of the master's host (%n)",
	"fail-store":    "a transaction of the store is to fail (%n)",
	"slow-store":    "the store is slow for a while (%n)",
	"lose-store":    "the store is gone for a while (%n)",
	"lose-git":      "git is gone for a while (%n)",
	"split-master":  "another master takes over, and the old one goes on for a while (%n)",
	"move-master":   "another host leads, whose clock is set otherwise (%n)",
	"restore":       "the store is put back to a snapshot (%n)",
	"go-back":       "a later release leads for a while, and then this one (%n)",

	"kill-agent":        "the agent of %m is killed",
	"crash-agent":       "the agent of %m is to die within its next actions (%n)",
	"stop-agent":        "the agent of %m is stopped for a while (%n)",
	"halt":              "the agent of %m is stopped with its tasks",
	"reboot":            "%m restarts",
	"lose-machine":      "%m is silent for minutes (%n)",
	"lose-disk":         "%m restarts with an empty disk",
	"ask-for-name":      "another machine asks for the name of %m for a while (%n)",
	"overload":          "%m is overloaded for a while (%n)",
	"set-machine-clock": "somebody sets the clock of %m (%n)",
	"fail-disk":         "a write to the disk of %m is to fail (%n)",
	"fill-disk":         "the disk of %m is full for a while (%n)",
	"trouble":           "%m is in trouble for a while (%n)",
	"kill-task":         "something kills a task on %m (%n)",
	"take-port":         "something takes a port of %m, or gives it back (%n)",

	"cut":       "%m is cut off for a while (%n)",
	"cut-in":    "%m receives nothing for a while (%n)",
	"cut-out":   "nothing from %m arrives for a while (%n)",
	"cut-rack":  "the rack of %m is cut off for a while (%n)",
	"cut-half":  "half of the machines are cut off for a while, in some way (%n)",
	"delay":     "the next message of the link of %m takes long (%n)",
	"duplicate": "the next message of the link of %m comes twice",
	"replay":    "a message of long ago comes again on the link of %m (%n)",
}

// expectations say what should have been, by the words of what was found.
var expectations = []struct{ words, want string }{
	{"runs twice", "a generation has one process at most"},
	{"is not assigned to it", "what was superseded stops within 10 s of its machine's return"},
	{"machines that are reached", "a task has one process on the machines that a master reaches"},
	{"is stopped without a cause", "no task stops without a recorded cause"},
	{"where the store says it shall run", "no task is stopped but by what is stored, or by its own health"},
	{"a master that was replaced writes", "the store refuses whoever does not lead any more"},
	{"the master sleeps until", "a master that has something to do is awake"},
	{"is given up after", "a machine is given up after a minute of silence, not before"},
	{"overcommitted", "what is assigned to a machine fits it"},
	{"thousandths of", "no more of a device is held than there is"},
	{"port ", "no two processes of a machine have the same port"},
	{"its alloc", "what runs in an alloc runs where that is, while that is there"},
	{"where there is room", "task i of a job runs in alloc i of its set, or the tasks are shared out evenly, as far as there is room"},
	{"one would be better on", "a service is spread as evenly as there is room: at once when it is updated, else when nothing has moved for 5 min"},
	{"they are admitted", "what is admitted is within its quota"},
	{"are admitted, quota is", "what is admitted is within its quota"},
	{"at most", "what muster chooses to stop stays within the budget"},
	{"is preempted for", "a task is preempted for one of higher priority only, and within production and monitoring never"},
	{"makes room for", "others make room for a task once, and for a drain within budgets"},
	{"does not want a machine again", "what was preempted comes back"},
	{"as removed, and the last good version", "a bad package changes nothing of what runs"},
	{"which is not its owner's", "what a directory may not declare is not taken"},
	{"which has not finished", "what is stored as done has finished"},
	{"after it has finished", "an index of a batch job that is done is not run again"},
	{"that it is done", "an index of a batch job that is done is not run again"},
	{"ago and is scheduled again", "back-off is kept, over failovers too"},
	{"cordoned since", "a machine gets nothing new while it is cordoned"},
	{"it must never run twice", "what must never run twice waits for the end of the old one, or for a commit that says its machine is gone"},
	{"passed its canary", "no more tasks than the canary has get data before it is promoted"},
	{"healthy last", "a job whose rollout failed returns to the data that was healthy last, and stays with it"},
	{"had its deadline", "what is left at a drain's deadline is stopped where the object says so"},
	{"emptied at once", "of the machines that one object drains no more are emptied at a time than it says"},
	{"which is drained", "a drained machine is empty when the cell is quiet"},
	{"the counter", "a generation is counted before it is given, and given once"},
	{"epoch", "each connection of a machine has a newer epoch"},
	{"what is kept of the cell says", "what is remembered from step to step is what would be found out from nothing"},
	{"was never committed", "what is in force was committed, whole: half a package is never visible"},
	{"system job", "a system job has one task on each machine, whose index stays"},
	{"nothing has been wrong with it", "a machine that does well is not given up"},
	{"together, and it has", "what is in an alloc fits it"},
	{"refers to", "what is stored refers to what is stored: half a package is never visible"},
	{"is left without its job", "what is stored is whole after every write"},
	{"does not converge", "a cell that is left alone converges"},
	{"a converged cell wrote", "a cell that has converged writes nothing"},
	{"as unhealthy after", "nothing is stopped for its health that was not found wanting as often as its job says"},
	{"panic", "the cores do not panic, whatever they are given"},
}

// expectation says what was expected where an error was found.
func expectation(err error) string {
	for _, e := range expectations {
		if strings.Contains(err.Error(), e.words) {
			return e.want
		}
	}
	return "this is never to be: see check.go and oracle.go in cmd/internal/sim"
}

const (
	// most is how many lines of what was seen after one action are written.
	most = 40
	// last is how many actions are written, from the last on.
	last = 60
)

// Transcript plays a script and writes down what happened for a person to read: each
// action with what was seen of it, and in the end which invariant is broken and
// what was expected. Where much was seen, only what has to do with that is written.
func (s *Script) Transcript(mutant *Mutant) string {
	w, err := s.Play(mutant)
	subject := subjects(err)
	var b strings.Builder
	fmt.Fprintf(&b, "%d actions on %d machines%s\n", len(s.Actions), s.World.Machines, s.World.describe())
	chapters := strings.Split("\n"+w.History(), chapterMark)
	if n := len(s.Actions) - last; n > 0 {
		fmt.Fprintf(&b, "       (and %d actions before these)\n", n)
	}
	for i, chapter := range chapters {
		if i <= len(s.Actions)-last {
			continue
		}
		lines := strings.Split(strings.TrimSpace(chapter), "\n")
		if i > 0 {
			clock, what, _ := strings.Cut(lines[0], " ")
			fmt.Fprintf(&b, "%3d. %s %s\n", i, clock, what)
			lines = lines[1:]
		}
		writeLines(&b, lines, subject)
	}
	if err == nil {
		b.WriteString("All invariants hold.\n")
		return b.String()
	}
	fmt.Fprintf(&b, "BROKEN:   %s\nEXPECTED: %s\n", err, expectation(err))
	return b.String()
}

// writeLines writes those lines that are about the subject and about masters, and
// how many others there are; all of them if they are few.
func writeLines(b *strings.Builder, lines []string, subject *regexp.Regexp) {
	left := 0
	all := len(lines) <= most
	for _, line := range lines {
		switch {
		case line == "" || strings.Contains(line, "VIOLATED"):
		case all || subject != nil && subject.MatchString(line) || strings.Contains(line, "master"):
			fmt.Fprintf(b, "       %s\n", line)
		default:
			left++
		}
	}
	if left > 0 {
		fmt.Fprintf(b, "       (and %d lines on other things)\n", left)
	}
}

// chapterMark begins an action in a history.
const chapterMark = "\n# "

// chapter begins an action in the history.
func (w *World) chapter(a Action) {
	text, known := phrases[a.Do]
	if !known {
		text = strings.ReplaceAll(string(a.Do), "-", " ") + " (machine %m, job %j, %n)"
	}
	user, _, t := w.repo.job(a.Job)
	text = strings.NewReplacer("%m", w.machine(a).name, "%j", user+"/"+t.name, "%n", fmt.Sprint(a.N)).Replace(text)
	w.chapterOf(text)
}

func (w *World) chapterOf(what string) {
	fmt.Fprintf(&w.history, "# %s %s\n", w.now.Format("15:04:05.000"), what)
}

// describe says what is particular about a world.
func (c Config) describe() string {
	out := fmt.Sprintf(", seed %d", c.Seed)
	if c.Cut > 0 {
		out += fmt.Sprintf(", at most %d writes in a transaction", c.Cut)
	}
	if c.Slow {
		out += ", messages take their time"
	}
	return out
}

// subjects matches what an error is about: its tasks and machines.
func subjects(err error) *regexp.Regexp {
	if err == nil {
		return nil
	}
	var names []string
	for _, n := range subjectWord.FindAllString(err.Error(), -1) {
		names = append(names, regexp.QuoteMeta(strings.TrimPrefix(n, cellName+"/")))
	}
	if len(names) == 0 {
		return nil
	}
	return regexp.MustCompile(`(` + strings.Join(names, `|`) + `)\b`)
}

// subjectWord is a job, a task or a machine in a message.
var subjectWord = regexp.MustCompile(`\b(?:[a-z]+/)+[a-z]+(?:/[0-9]+)?\b|\bm[0-9]+\b`)
