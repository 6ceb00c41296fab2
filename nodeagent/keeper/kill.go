package keeper

import (
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
// See marked for since.
func killMarked(mark string, since uint64) bool {
	list := func() ([]process, error) { return marked(mark, Identity{}, since) }
	for range markedLooks {
		found, err := list()
		if err != nil {
			return false
		}
		if len(found) > 0 {
			killAll(list)
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}
