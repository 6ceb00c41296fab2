package loop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// LookEvery is a good Config.LookEvery: a look costs a write of one block that
// need not reach the disk.
const LookEvery = 10 * time.Second

// stuckAfter is how long that write may take: a disk that hangs is as good as
// none.
const stuckAfter = 30 * time.Second

// ErrTask is in the error of a Runtime's Start that is the task's own fault: any
// other machine would refuse it too. All other errors are the machine's.
var ErrTask = errors.New("it is the task's own fault")

// machineState is what the looks at the machine have found. It belongs to Run's
// goroutine.
type machineState struct {
	conditions nodeagent.Conditions
	looked     time.Time
	writing    bool // a look at the disk is under way
}

// clockSample is one comparison with the master's clock.
type clockSample struct{ ahead, within time.Duration }

// Clock takes by how much the master's clock is ahead of this machine's, and how
// far that may be off. The newest counts. It does not block.
func (l *Loop) Clock(ahead, within time.Duration) {
	l.metrics.clock.Set(ahead.Seconds())
	l.clock.Store(&clockSample{ahead, within})
}

// look looks at the machine when that is due, and returns when it is to be
// called again.
func (l *Loop) look(ctx context.Context, now time.Time) time.Time {
	changed, wake := l.machineState.conditions.Turn(now)
	l.logConditions(changed)
	every := cmp.Or(l.cfg.LookEvery, longSleep)
	next := l.machineState.looked.Add(every)
	if since := now.Sub(l.machineState.looked); since >= every || since < 0 {
		next = now.Add(every)
		if l.cfg.LookEvery > 0 {
			l.lookNow(ctx, now)
		}
	}
	if !wake.IsZero() && wake.Before(next) {
		return wake
	}
	return next
}

func (l *Loop) lookNow(ctx context.Context, now time.Time) {
	v := &l.machineState
	if c := l.clock.Swap(nil); c != nil {
		l.logConditions(v.conditions.SeeClock(c.ahead, c.within, now))
	}
	if v.writing { // the last look has not come to an end
		if took := now.Sub(v.looked); took >= stuckAfter {
			l.see(schema.ReadOnlyFS, nodeagent.Bad, fmt.Sprintf("a write to the state directory has taken more than %v", stuckAfter))
		}
		return
	}
	l.scrub(ctx)
	v.looked, v.writing = now, true
	l.workers.Go(func() {
		err := l.disk.try()
		l.send(ctx, func() {
			v.writing = false
			if err != nil {
				l.see(schema.ReadOnlyFS, nodeagent.Bad, err.Error())
				return
			}
			l.see(schema.ReadOnlyFS, nodeagent.Good, "")
		})
	})
}

// see takes what a look at the machine says of a condition, see
// nodeagent.Conditions.
func (l *Loop) see(kind schema.ConditionKind, level nodeagent.Level, message string) {
	l.logConditions(l.machineState.conditions.See(kind, level, message, time.Now()))
}

// logConditions logs the conditions if they have changed.
func (l *Loop) logConditions(changed bool) {
	if !changed {
		return
	}
	list := l.machineState.conditions.List()
	if len(list) == 0 {
		l.cfg.Log.Info("the machine has no conditions any more")
	}
	for _, c := range list {
		l.cfg.Log.Warn("the machine has a condition", "condition", string(c.Kind), "message", c.Message)
	}
}

// tryFile is written to find out whether the state directory can be.
const tryFile = "writable"

// try errs when the state directory cannot be written to. A full disk is
// another matter.
func (d *disk) try() error {
	name := filepath.Join(d.root, tryFile)
	err := os.WriteFile(name, []byte("x"), 0o600)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		err = nil
	}
	return errors.Join(err, gone(os.Remove(name)))
}

// gone returns err unless it says that there is no such file.
func gone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
