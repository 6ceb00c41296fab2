package keeper

import (
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// idleSlack is the timer slack of our processes beside tasks, in nanoseconds: how much later than
// asked for their threads may be woken. The thread by which Go watches a process sleeps for
// 20 µs at a time after each wake-up of the process, and gives it a further thread where one is
// in the kernel for that long; so it sleeps 50 times longer.
const idleSlack = 1_000_000

// slackVariable is the entry of the environment with the timer slack that tasks and the commands
// of checks have, in nanoseconds: that of the agent.
const slackVariable = "MUSTER_TIMER_SLACK"

// withTimerSlack has f run on a thread with this timer slack, in nanoseconds, which
// processes that it starts inherit with all their threads. before is what it was.
func withTimerSlack(slack uintptr, f func(before int) error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err == nil {
		err = unix.Prctl(unix.PR_SET_TIMERSLACK, slack, 0, 0, 0)
	}
	if err != nil {
		return fmt.Errorf("timer slack: %w", err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(before), 0, 0, 0) }() // as it could be set before
	return f(before)
}

// restoreTimerSlack gives the calling thread the timer slack of the agent, which what it
// forks has, too. The other threads keep theirs.
func restoreTimerSlack() error {
	n, err := strconv.ParseUint(os.Getenv(slackVariable), 10, 63)
	if err != nil {
		return fmt.Errorf("%s: %w", slackVariable, err)
	}
	return unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(n), 0, 0, 0)
}
