package sim

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// promise is a sentence of a page, or a part of one, that a user may rely on. Either
// oracles hold it, each by a planted bug in mutants/ that it finds, or it says why none
// does.
type promise struct {
	sentence string
	oracles  []string // functions of this package
	mutants  []string // of which each is a way to break it
	none     string
}

const (
	outside  = "it is about what is outside of the cores: "
	measured = "a simulated machine measures nothing: "
)

// promises are those of the pages. A page says more that is no promise: how to type it,
// what it looks like.
var promises = map[string][]promise{
	"README.md": {
		{sentence: "A crash, a lost machine and a new commit are handled alike: the observed state differs from the desired one, and is reconciled.", oracles: []string{"Calm", "checkAsleep"}, mutants: []string{"wake-skipped", "wake-of-rest"}},
		{sentence: "A bad commit affects only itself: a package that does not compile, or a job that is not admitted, keeps its last good version", oracles: []string{"checkEvents"}, mutants: []string{"stale-empties"}},
		{sentence: "A newer commit takes over in the middle of a rollout", oracles: []string{"Calm"}, mutants: []string{"superseded-runs"}},
		{sentence: "If the canary crashes or is unhealthy the rollout stops, the other tasks keep their version", oracles: []string{"checkCanary"}, mutants: []string{"canary-count", "canary-proven"}},
		{sentence: "for updates, drains and all other voluntary disruptions together", oracles: []string{"checkBudget", "checkHour"}, mutants: []string{"budget-forgotten", "down-by-one", "drain-budget"}},
		{sentence: "after a minute of silence its tasks are rescheduled, unless too many machines are silent at once", oracles: []string{"checkLost", "checkShare"}, mutants: []string{"lost-early", "lost-lately"}},
		{sentence: "until then the removal is held, and the tasks keep running", oracles: []string{"checkEvents"}, mutants: []string{"guard-ignored"}},
		{sentence: "without a commit, within its disruption budget", oracles: []string{"checkRestarts", "checkBudget"}, mutants: []string{"restart-uncounted", "restart-again"}},
		{sentence: "muster suspend all", oracles: []string{"checkSuspended"}, mutants: []string{"suspended-ignored"}},
		{sentence: "The demo verifies each step, and removes everything at the end.", none: outside + "cmd/internal/demo does, as a test"},
	},
	"docs/concepts.md": {
		{sentence: "update stops a task only when its machine has the new image", oracles: []string{"checkBroughtFirst", "checkGiven"}, mutants: []string{"update-before-bring", "package-not-awaited"}},
		{sentence: "Another plaintext is a new version of the jobs that name it, which is rolled out as any other, or does what `onChange` says.", oracles: []string{"current"}, mutants: []string{"secret-no-restart", "secret-never-renewed"}},
		{sentence: "A machine is sent a secret only while a task of its own names it", oracles: []string{"checkHeld"}, mutants: []string{"secrets-of-others"}},
		{sentence: "A task whose secrets are not on its machine is `starting`", oracles: []string{"checkGiven"}, mutants: []string{"secret-not-awaited"}},
		{sentence: "A machine is sent the logins for what its own tasks need", oracles: []string{"checkViews"}, mutants: []string{"logins-of-others", "logins-of-before"}},
		{sentence: "a cordoned machine gets no new tasks, and its tasks keep running", oracles: []string{"checkCordons"}, mutants: []string{"cordon-ignored"}},
		{sentence: "A machine keeps its index for as long as the cell knows it", oracles: []string{"checkSystemIndices", "checkForgotten"}, mutants: []string{"system-index", "forgotten-index"}},
		{sentence: "a new machine gets the lowest index that is free", oracles: []string{"checkLowest"}, mutants: []string{"forgotten-index", "system-highest"}},
		{sentence: "A batch index that has finished is never run again, also when the job's data changes.", oracles: []string{"checkStart", "checkDone"}, mutants: []string{"batch-again", "batch-shrinks", "batch-terminated"}},
		{sentence: "has task i in alloc i, so that each server has its helper; the tasks of any other job are distributed evenly", oracles: []string{"checkBeside"}, mutants: []string{"alloc-apart"}},
		{sentence: "It is checked when a job is admitted, not when its tasks are placed.", oracles: []string{"checkPrefixes"}, mutants: []string{"quota-by-one", "quota-growth", "admission-by-name"}},
		{sentence: "The cell never gives away more of a device than there is", oracles: []string{"checkDevices"}, mutants: []string{"room-of-stopping"}},
		{sentence: "Its number is unique in the cell, and never reused.", oracles: []string{"checkState", "checkTwice"}, mutants: []string{"generation-reused", "counter-last", "restore-floor"}},
		{sentence: "No task of band production preempts another of that band", oracles: []string{"checkPreempted"}, mutants: []string{"prod-by-prod"}},
		{sentence: "A job with `preemptible: false` has its running tasks preempted by none", oracles: []string{"checkProtected"}, mutants: []string{"preemptible-ignored"}},
		{sentence: "may still be preempted there by the task for which the machine is held", oracles: []string{"checkBehind"}, mutants: []string{"behind-forgotten"}},
		{sentence: "When the bound is lowered, what is admitted stays and is still not preempted", oracles: []string{"checkProtected", "checkPrefixes"}, mutants: []string{"preemptible-bound"}},
		{sentence: "The machine is assigned to the preemptor only when all of them are known to be dead", oracles: []string{"checkState"}, mutants: []string{"room-of-stopping", "stop-not-awaited"}},
		{sentence: "Where a service has come to be spread worse than it could be, as when a rack was lost and has returned, or machines joined later, a running task is moved", oracles: []string{"DrainHalf"}, mutants: []string{"spread-repair", "spread-update"}},
		{sentence: "a task is placed only in a zone that has then at most one task more than the zone that has the fewest", oracles: []string{"checkSkew"}, mutants: []string{"skew-by-one"}},
		{sentence: "while fewer zones count, each gets as many tasks as if another had none", oracles: []string{"checkSkew"}, mutants: []string{"skew-domains"}},
		{sentence: "Tasks that are stopping do not count.", none: "checkAsleep looks for it; 8 seeds did not find a planted bug, which testdata/histories/skew-after-stop.txt does"},
		{sentence: "of which one at least must hold as well", oracles: []string{"checkConstraints"}, mutants: []string{"anyof-first"}},
		{sentence: "When the time that was first expected has passed, nothing goes behind any more", oracles: []string{"checkHolds"}, mutants: []string{"hold-late"}},
		{sentence: "With `together: true` all tasks of a job get places, or none.", oracles: []string{"checkCame"}, mutants: []string{"gang-part"}},
		{sentence: "They are admitted together or not at all", oracles: []string{"admittedTogether"}, mutants: []string{"gang-admitted-apart"}},
		{sentence: "A task that is stopping has no place: the others wait until it has stopped", oracles: []string{"checkCame"}, mutants: []string{"gang-stopping"}},
		{sentence: "When one task is preempted, all are", none: "checkGoneTogether looks for it; 10 minutes of histories did not find a planted bug, which reconciler/testdata/script/gang does"},
		{sentence: "those go back that got theirs while it had none", none: "checkPart looks for it; 10 minutes of histories did not find a planted bug, which reconciler/testdata/script/gang-crash does"},
		{sentence: "to open a hole for a task that has waited for 5 min", oracles: []string{"checkMovesFor"}, mutants: []string{"move-at-once"}},
		{sentence: "were not moved for others within an hour", none: "checkMove looks for it; 10 minutes of histories did not find a planted bug, which reconciler/testdata/script/holes-again does"},
		{sentence: "No task is moved from or to a machine that is held for another task", none: "checkMovesFor looks for it; 10 minutes of histories did not find a planted bug, which reconciler/testdata/script/holes-held does"},
		{sentence: "A move keeps room at its destination first", none: "checkMove looks for it; 10 minutes of histories did not find a planted bug, which reconciler/testdata/script/holes-two does"},
		{sentence: "All its tasks must find room on other machines that are in use, and used more than it", none: "checkEmptied looks for it; no bug is planted: placement/rebalance has the tests, and reconciler/testdata/script/emptying"},
		{sentence: "It keeps its last good version.", oracles: []string{"checkEvents"}, mutants: []string{"stale-empties", "ownership-ignored"}},
		{sentence: "A commit that leaves nothing of the repository is held whatever the number.", none: "deletesRest leaves one directory; reconciler/testdata/script has it"},
		{sentence: "both sides refuse messages with a lower one", oracles: []string{"join", "checkTask"}, mutants: []string{"epoch-reused", "epoch-ignored", "forgotten-epoch"}},
		{sentence: "placement never commits more than the capacity of a machine", oracles: []string{"checkRooms"}, mutants: []string{"resources-of-new-data", "alloc-room"}},
		{sentence: "A change of `cpuMilli`, `ramBytes` or `diskBytes` does not restart tasks", none: "the limits do not distinguish a process from its successor; reconciler/testdata/script has it"},
		{sentence: "A running task is stopped only when there is room for the new version", oracles: []string{"checkBudget"}, mutants: []string{"budget-sick"}},
		{sentence: "That means the version that is the canary when the commit is applied.", oracles: []string{"checkCanary"}, mutants: []string{"canary-wait"}},
		{sentence: "all tasks return to that version, and the failed one is not tried again until a commit changes the job", oracles: []string{"checkReturned", "checkRetried"}, mutants: []string{"return-forgotten", "held-forgets"}},
		{sentence: "The tasks of jobs that name the set (same user, same cell) run inside.", oracles: []string{"checkInside"}, mutants: []string{"moved-outside"}},
		{sentence: "Such a task is rescheduled only when it is known not to run any more", oracles: []string{"checkTwin", "checkOnce"}, mutants: []string{"never-twice", "never-twice-restart"}},
		{sentence: "Each task is stopped when its job's budget allows it and another machine has room, which is kept for it from then on; or where tasks of lower priority make room, if their budgets allow that.", oracles: []string{"checkBudget"}, mutants: []string{"drain-budget"}},
		{sentence: "The tasks are stopped first, with the cause `alloc-gone`, and the alloc ends when the last of them has.", oracles: []string{"checkAllocs"}, mutants: []string{"alloc-first"}},
		{sentence: "A set that is removed while a job names it stays as it is", oracles: []string{"checkSets"}, mutants: []string{"set-removed"}},
		{sentence: "After `failures` failed checks in a row the task is unhealthy.", oracles: []string{"checkUnhealthy"}, mutants: []string{"unhealthy-at-once"}},
		{sentence: "The wait doubles with each restart up to `maxDelaySeconds`", oracles: []string{"checkBegin", "checkBackoff"}, mutants: []string{"rest-undisturbed", "backoff-failover", "backoff-forgotten"}},
		{sentence: "no other task on the machine was given them", oracles: []string{"checkPorts", "checkNumbers"}, mutants: []string{"ports-twice", "number-twice"}},
		{sentence: "or the number that resources.portNumbers asks for", oracles: []string{"checkNumbers", "checkWaiting"}, mutants: []string{"port-of-own"}},
		{sentence: "Anti-affinity that must hold is symmetric", oracles: []string{"checkRelations"}, mutants: []string{"apart-one-way"}},
		{sentence: "Without a weight it must hold", oracles: []string{"checkRelations"}, mutants: []string{"near-anywhere"}},
		{sentence: "On a machine the task gets the devices of the first alternative for which enough are free there", oracles: []string{"checkAlternative"}, mutants: []string{"alternative-last"}},
		{sentence: "What is admitted stays, and asking for less is always allowed.", oracles: []string{"checkPrefixes", "checkEvents"}, mutants: []string{"quota-growth"}},
		{sentence: "it cannot signal or trace the agent, a keeper, or a task of another owner, or touch their files", none: outside + "nodeagent/runtime tries it with real processes"},
		{sentence: "No starvation.", none: measured + "nodeagent's tests of pressure do"},
		{sentence: "comes back with the task; then the agent removes it", none: "no job here has a sticky directory: nodeagent/loop has the tests"},
	},
	"docs/operations.md": {
		{sentence: "a token is used a second time", none: outside + "reconciler/pki and the tests of both ends of the link do"},
		{sentence: "If it is set back, a wait starts again from its beginning at worst.", oracles: []string{"checkWaits", "checkBackoff"}, mutants: []string{"clock-backoff"}},
		{sentence: "canaries, rollouts, suspensions and the hour of a disruption budget go on for as long as before", oracles: []string{"checkHour", "checkCanary"}, mutants: []string{"budget-forgotten"}},
		{sentence: "the new master collects their reports for 60 s before it decides or sends anything", oracles: []string{"checkView"}, mutants: []string{"restore-sends"}},
		{sentence: "a task that the snapshot has on a machine which no longer runs it is pending", oracles: []string{"checkTwice"}, mutants: []string{"restore-forgets"}},
		{sentence: "a task that runs is adopted, as the same process, if its version is in the snapshot or in the repository's head", oracles: []string{"checkLost", "checkTerm"}, mutants: []string{"restore-lost"}},
		{sentence: "No number is used twice, also when a snapshot is restored again", oracles: []string{"checkState", "join", "checkTwice"}, mutants: []string{"restore-floor"}},
		{sentence: "a batch task that finished less than 10 minutes before its machine reports, by the clock of the machine, stays finished", none: "what finished after the snapshot may run again or not: nothing here says which of the two it was; reconciler/restore_test.go has it"},
		{sentence: "The writes of a leader that resumes after its lease are fenced off, and it becomes a standby.", oracles: []string{"turnRival", "thaw"}, mutants: []string{"fence"}},
		{sentence: "The master retries every second and continues without a restart.", none: outside + "cmd/internal/cell does that; here a master that loses its store is replaced"},
		{sentence: "nobody else is preempted for it while it stops", oracles: []string{"checkMadeRoom"}, mutants: []string{"drain-preempts-again"}},
		{sentence: "the disruption budgets of those that make room are never exceeded for it", oracles: []string{"checkMadeRoom"}, mutants: []string{"drain-overruns"}},
		{sentence: "with `\"stop\"` all remaining tasks are stopped", oracles: []string{"checkDrains"}, mutants: []string{"drain-deadline"}},
		{sentence: "the next is drained when one is empty", oracles: []string{"checkWaves"}, mutants: []string{"drain-waves", "wave-one-more", "wave-empty"}},
		{sentence: "A silent machine cannot stop tasks, and is skipped.", oracles: []string{"checkWaves", "checkSilentDrains"}, mutants: []string{"wave-silent", "wave-silent-stopped"}},
		{sentence: "The state of the bucket is stored: a new master continues with it.", none: "no machine here has more than the 100 tasks that a bucket has at once; reconciler/control/bucket_test.go has it"},
		{sentence: "machines given up within the last 10 minutes count", oracles: []string{"checkShare", "checkShares"}, mutants: []string{"lost-lately", "lost-minutes", "lost-for-ever"}},
		{sentence: "Neither time nor a new master ends it: it ends when machines return, or are declared gone.", oracles: []string{"checkShares"}, mutants: []string{"lost-hold-ends", "lost-returned"}},
		{sentence: "it does not count as silent", oracles: []string{"checkShares"}, mutants: []string{"lost-gone-counts"}},
		{sentence: "stops the others within 10 s", oracles: []string{"checkTask"}, mutants: []string{"superseded-runs"}},
		{sentence: "A job may declare how long it tolerates silence", none: "checkLost looks for it, and takes too many seeds for its planted bug, silence-ignored; reconciler/testdata/script has it"},
		{sentence: "a task is rescheduled only when it is known not to run any more", oracles: []string{"checkOnce"}, mutants: []string{"never-twice"}},
		{sentence: "A machine that is connected is not gone, whatever is declared", none: "checkOnce looks for it, and takes too many seeds for its planted bug, gone-at-once; reconciler/testdata/script has it"},
		{sentence: "The link epoch of the machine continues from the highest that any forgotten machine had", oracles: []string{"checkPrefixes", "join"}, mutants: []string{"forgotten-epoch", "forgotten-epoch-last"}},
		{sentence: "all of them, regardless of the bucket and of a hold, also those that must never run twice", oracles: []string{"checkForgotten"}, mutants: []string{"forgotten-bucket", "forgotten-stays", "forgotten-first"}},
		{sentence: "A machine whose agent is connected cannot be forgotten.", oracles: []string{"forget"}, mutants: []string{"forget-connected"}},
		{sentence: "is refused until it is lost", oracles: []string{"turnStranger"}, mutants: []string{"name-of-silent"}},
		{sentence: "is refused until it is declared gone or forgotten, as above", oracles: []string{"turnStranger"}, mutants: []string{"name-of-waiting"}},
		{sentence: "A condition itself stops nothing", none: "what a machine in trouble may not get is placement's, which has its own tests"},
		{sentence: "The agent lists candidates, and the master moves the first that is not prod, is not of a system job", oracles: []string{"checkRelief"}, mutants: []string{"relief-many"}},
		{sentence: "A task over its `diskBytes` is stopped", none: measured + "nodeagent's tests of pressure do"},
		{sentence: "Nothing is dropped because the disk is slow", none: outside + "nodeagent/logfile and nodeagent/keeper do"},
		{sentence: "are still replaced, with the version that they ran", oracles: []string{"Calm"}, mutants: []string{"wake-skipped"}},
		{sentence: "its admitted version stays, a rollout or a return to the previous version pauses", oracles: []string{"checkSuspended"}, mutants: []string{"suspended-ignored"}},
		{sentence: "A task counts as restarted when its generation is newer than the request, whatever the reason", oracles: []string{"checkRestarts"}, mutants: []string{"restart-again", "restart-forgotten"}},
		{sentence: "any file of a task, while its agent runs", none: outside + "the disk here is whole or lost; nodeagent/loop damages each file"},
		{sentence: "a new one reads the store and collects the reports of the agents", oracles: []string{"checkState", "checkViews"}, mutants: []string{"push-session", "push-unreported", "push-data"}},
		{sentence: "a new one adopts them by their directories", oracles: []string{"checkTwice"}, mutants: []string{"push-empty"}},
		{sentence: "new generations elsewhere; if it returns, it stops the old ones", oracles: []string{"checkTask"}, mutants: []string{"superseded-runs"}},
	},
}

// TestPromises: each sentence stands in its page, each function that holds it is there,
// and so is each bug that shows it.
func TestPromises(t *testing.T) {
	t.Parallel()
	functions := map[string]bool{}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^func \(\w+ \*?\w+\) (\w+)\(`)
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			functions[m[1]] = true
		}
	}
	var planted []string
	for _, p := range readPlanted(t) {
		planted = append(planted, p.name)
	}
	for page, list := range promises {
		text, err := os.ReadFile(filepath.Join(tree, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list {
			p.check(t, page, plain(string(text)), functions, planted)
		}
	}
}

func (p *promise) check(t *testing.T, page, text string, functions map[string]bool, planted []string) {
	if !strings.Contains(text, plain(p.sentence)) {
		t.Errorf("%s does not say %q any more: say what it promises now", page, p.sentence)
	}
	if (len(p.oracles) > 0) == (p.none != "") || (len(p.oracles) > 0) != (len(p.mutants) > 0) {
		t.Errorf("%s: %q: want oracles with planted bugs, or why there are none", page, p.sentence)
	}
	for _, f := range p.oracles {
		if !functions[f] {
			t.Errorf("%s: %q: there is no function %s", page, p.sentence, f)
		}
	}
	for _, m := range p.mutants {
		if *only == "" && !slices.Contains(planted, m) {
			t.Errorf("%s: %q: there is no mutants/%s", page, p.sentence, m)
		}
	}
}

// plain is text without the marks of Markdown, in one line.
func plain(text string) string {
	return strings.Join(strings.Fields(strings.NewReplacer("*", "", "`", "").Replace(text)), " ")
}
