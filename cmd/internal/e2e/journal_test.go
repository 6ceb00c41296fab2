package e2e_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhq/muster/reconciler/status"
)

// script is what every task runs: it takes the lock of its index, which no other
// process of that index may have, and writes each turn of its life into the
// index's journal. Its children inherit the lock, so what outlives a task counts.
// Each entry is one write to a file opened for appending.
const script = `#!/bin/sh
# usage: task.sh JOURNALS polite|stubborn|batch|flaky|doomed WORD
# The first process of a namespace that has no trap yet would not get a SIGTERM;
# its children do, and are started again.
trap early=y TERM
journal=$1/$MUSTER_JOB.$MUSTER_TASK_INDEX
generation=${MUSTER_TASK_DIR%/work}
generation=${generation##*/}
exec 9>>"$journal.lock"
until flock -n -E 7 9; do
	[ $? != 7 ] || { echo "double $$" >>"$journal"; break; }
done
namespace=
until [ "$namespace" ]; do namespace=$(readlink /proc/$$/ns/pid); done
read -r stat </proc/$$/stat
set -- "$2" "$3" $stat
echo "start $$ ${24} $2 $namespace $generation" >>"$journal"
case $1 in
flaky)
	# Once in each generation, whose directory this is.
	if mkdir crashed 2>/dev/null; then
		sleep 0.3
		echo "crash $$" >>"$journal"
		exit 1
	fi
	trap 'echo "term $$" >>"$journal"; exit 0' TERM ;;
doomed)
	sleep 0.3
	echo "crash $$" >>"$journal"
	exit 1 ;;
batch)
	sleep 0.7
	echo "done $$" >>"$journal"
	exit 0 ;;
polite) trap 'echo "term $$" >>"$journal"; exit 0' TERM ;;
stubborn) trap 'echo "term $$" >>"$journal"' TERM ;;
esac
[ -z "$early" ] || kill -TERM $$
while :; do sleep 3600 & wait $!; done
`

// journal is what the processes of one task index have written.
type journal struct {
	starts      []process // in the order of their starts; pid and start alone
	words       []string  // what each was given
	generations []uint64  // of which each was
	ends        []string  // how each has ended by its own account: "" if it gave none
	doubles     int       // starts that found the lock taken
	dones       int
	terms       int
}

// read reads the journals in dir, by job and index as in "web.0".
func readJournals(t *testing.T, dir string) map[string]journal {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	journals, pids := map[string]journal{}, pidsOutside(t)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".lock") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		b, err := parseBook(string(text), pids)
		if err != nil {
			t.Fatalf("journal of %s: %v", e.Name(), err)
		}
		journals[e.Name()] = b
	}
	return journals
}

// journalsOf returns the journals once each task that runs has written into its own: a
// process runs a moment before its script has written its first line. What is
// missing for good is for the caller to see.
func (c *cell) journalsOf(s *status.Status) map[string]journal {
	c.t.Helper()
	var journals map[string]journal
	_ = eventually(func() error {
		journals = readJournals(c.t, c.path("journals"))
		for i := range s.Tasks {
			if task := &s.Tasks[i]; task.State == "running" && journals[journalOf(task.Name)].last().pid != task.PID {
				return fmt.Errorf("task %s has not written yet", task.Name)
			}
		}
		return nil
	})
	return journals
}

// inside is a process as its own pid namespace has it. Numbers of namespaces are
// given again, so its start distinguishes it from one that has ended.
type inside struct{ namespace, pid, start string }

// pidsOutside returns the pids that this namespace has for processes of all.
func pidsOutside(t *testing.T) map[inside]int {
	t.Helper()
	list, err := all()
	if err != nil {
		t.Fatal(err)
	}
	pids := map[inside]int{}
	for _, p := range list {
		namespace, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", p.pid))
		if err != nil {
			continue // it has ended, or is another user's
		}
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
		for line := range strings.Lines(string(status)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "NSpid:" {
				pids[inside{namespace, f[len(f)-1], p.start}] = p.pid
			}
		}
	}
	return pids
}

// parseBook gives a process that has ended no pid.
func parseBook(text string, pids map[inside]int) (journal, error) {
	var b journal
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 6 && f[0] == "start":
			b.starts = append(b.starts, process{pid: pids[inside{f[4], f[1], f[2]}], start: f[2]})
			b.words, b.ends = append(b.words, f[3]), append(b.ends, "")
			generation, err := strconv.ParseUint(f[5], 10, 64)
			if err != nil {
				return b, err
			}
			b.generations = append(b.generations, generation)
		case len(f) == 2 && f[0] == "double":
			b.doubles++
		case len(f) == 2 && len(b.ends) > 0 && (f[0] == "done" || f[0] == "term" || f[0] == "crash"):
			b.ends[len(b.ends)-1] = f[0]
			switch f[0] {
			case "done":
				b.dones++
			case "term":
				b.terms++
			}
		default:
			return b, fmt.Errorf("line %q", line)
		}
	}
	return b, nil
}

// last returns the newest process of the journal.
func (b journal) last() process {
	if len(b.starts) == 0 {
		return process{}
	}
	return b.starts[len(b.starts)-1]
}

// checkRise fails the test unless each start was of a newer generation than those
// before.
func (b journal) checkRise(t *testing.T, name string) {
	t.Helper()
	for i := 1; i < len(b.generations); i++ {
		if b.generations[i] <= b.generations[i-1] {
			t.Errorf("%s: generation %d was started after %d", name, b.generations[i], b.generations[i-1])
		}
	}
}
