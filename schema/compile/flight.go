package compile

import (
	"context"
	"syscall"
	"time"

	"github.com/musterhq/muster/schema"
)

// What takes long may take longer than the time until the next commit, and than others wait for
// it. So that it gets done all the same, a package that has been evaluated for long goes on being so when
// the batch leaves it for later or is cancelled, and a further one, of this commit or of the next,
// takes the outcome. A tree that does not have the package as it is ends it.

// flight is the evaluation of a package by a child. What follows done is there when that is
// closed.
type flight struct {
	w      *worker
	limits Limits
	before time.Duration // processor time that the child had used before
	done   chan struct{}

	resp response
	died *death // then, or with err, w is of no more use
	err  error
}

// takeOff has a child evaluate a package, until it ends or is dropped.
func takeOff(ctx context.Context, w *worker, req request) *flight {
	f := &flight{w: w, limits: req.Limits, done: make(chan struct{})}
	f.before, _ = cpuOf(w.cmd.Process.Pid) // an error is that it has ended, as the outcome says
	go func() {
		f.resp, f.died, f.err = w.do(context.WithoutCancel(ctx), req)
		close(f.done)
	}()
	return f
}

// used returns the processor time that the evaluation has used; 0 when the child has ended.
func (f *flight) used() time.Duration {
	now, err := cpuOf(f.w.cmd.Process.Pid)
	if err != nil || f.w.cmd.Process.Signal(syscall.Signal(0)) != nil {
		return 0 // once it was waited for, another process may have had its number
	}
	return now - f.before
}

// landed reports whether the outcome is there.
func (f *flight) landed() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// usable reports whether the child can evaluate more; done is closed.
func (f *flight) usable() bool { return f.died == nil && f.err == nil }

// inherited reports whether the child ended, for no reason of its limits, and had other packages
// before: one of them may be to blame, or it had ended since.
func (f *flight) inherited() bool {
	return f.died != nil && f.died.rule == schema.RuleInternal && f.w.packages > 1
}

// drop ends an evaluation that nobody needs, and waits for the child.
func (f *flight) drop() {
	f.w.end()
	<-f.done
	if f.usable() {
		f.w.kill()
	}
}

// flights are those that go on without a batch, by the key of the unit.
type flights map[string]*flight

// landed reports whether an outcome is there.
func (fs flights) landed(key string) bool { return fs[key] != nil && fs[key].landed() }

// keep drops all but some.
func (fs flights) keep(keys map[string]bool) {
	for key, f := range fs {
		if !keys[key] {
			f.drop()
			delete(fs, key)
		}
	}
}
