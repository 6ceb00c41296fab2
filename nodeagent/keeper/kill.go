package keeper

import "golang.org/x/sys/unix"

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
