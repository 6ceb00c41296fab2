package keeper

import (
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stopRounds bounds how often killAll looks for what was forked while it
// stopped the rest.
const stopRounds = 50

// killAll kills what list returns. First all are stopped, until no new one
// shows up: what is stopped cannot fork, so nothing outruns the kill.
func killAll(list func() ([]process, error)) {
	seen := map[Identity]bool{}
	for range stopRounds {
		found, err := list()
		if err != nil {
			break
		}
		news := false
		for _, p := range found {
			if !seen[p.Identity] && !p.zombie {
				seen[p.Identity], news = true, true
				_ = signalProcess(p.Identity, unix.SIGSTOP)
			}
		}
		if !news {
			break
		}
	}
	for id := range seen {
		_ = signalProcess(id, unix.SIGKILL)
	}
}

// markedLooks is how often in a row no marked process must be seen: one that has forked
// after the process table was read, and ended before it was looked at, hides the child.
const markedLooks = 3

// killMarked kills the processes that carry mark, and reports whether there were any.
// None of them began before since, as Identity has it; 0 if that is not known.
func killMarked(mark string, since uint64) bool { return carrying(mark, Identity{}, since).kill() }

// kill kills the processes that are looked for, and reports whether there were any.
func (m *marking) kill() bool {
	for range markedLooks {
		found, err := m.list()
		if err != nil {
			return false
		}
		if len(found) > 0 {
			killAll(m.list)
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

// KillMarked kills the processes of the caller's pid namespace that have the variable
// in their environment, with a value of which stray is true, and returns these values,
// sorted. Those of a task's pid namespace end with its first process, which ends with its
// keeper; others may be of an agent in a container, which calls its directories the same.
func KillMarked(variable string, stray func(value string) bool) []string {
	found := map[string]bool{}
	m := marking{since: 1, entry: func(pid int, entry string) bool {
		value, ok := strings.CutPrefix(entry, variable+"=")
		if !ok || !stray(value) || !inOurNamespace(pid) {
			return false
		}
		found[value] = true
		return true
	}}
	m.kill()
	return slices.Sorted(maps.Keys(found))
}
