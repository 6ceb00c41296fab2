package loop

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/musterhq/muster/schema"
)

// maxExecs is how many commands may run beside one task at once. They share its
// limits; who needs more has lost sight of them.
const maxExecs = 16

// errNoExec is the refusal of an agent with NoExec.
var errNoExec = errors.New("this machine runs no commands beside tasks: its agent was started with --no-exec")

// Exec runs a command beside the newest run of a task and speaks frames over
// conn. It returns when nothing of the command is left and the last frame is
// written, which says how it ended or why it was not run.
func (l *Loop) Exec(ctx context.Context, r schema.ExecRequest, conn io.ReadWriter) {
	log := l.cfg.Log.With("task", r.Task.Short(), "command", r.Command)
	if r.Copy != nil {
		log = log.With("copy", r.Copy.Direction, "path", r.Copy.Path)
	}
	of, p, err := l.beginExec(ctx, r)
	if err == nil {
		log.Info("exec")
		err = p.Exec(ctx, r, conn)
		_ = l.call(context.WithoutCancel(ctx), func() { // or the loop has ended
			if l.owner.execs[of]--; l.owner.execs[of] == 0 {
				delete(l.owner.execs, of)
			}
		})
	}
	if err != nil {
		log.Info("exec refused", "err", err)
		_, _ = conn.Write(schema.AppendExecFrame(nil, schema.ExecFailure, []byte(err.Error()))) // nobody may be there
	}
}

// beginExec finds the process of a task, and counts one more command beside it.
func (l *Loop) beginExec(ctx context.Context, r schema.ExecRequest) (of schema.TaskRef, p Process, err error) {
	if l.cfg.NoExec {
		return of, nil, errNoExec
	}
	if err := r.Check(); err != nil {
		return of, nil, err
	}
	full := false
	err = l.call(ctx, func() {
		o := l.owner
		for _, x := range o.agent.Alive() {
			if x.Task == r.Task && o.agent.Held(x.TaskRef).PID() > 0 {
				of, p = x.TaskRef, o.processes[x.TaskRef] // only one generation of a task is alive
			}
		}
		if full = o.execs[of] >= maxExecs; p != nil && !full {
			o.execs[of]++
		}
	})
	switch {
	case err != nil:
		return of, nil, err
	case p == nil:
		return of, nil, fmt.Errorf("task %s does not run here", r.Task.Short())
	case full:
		return of, nil, fmt.Errorf("%d commands run beside task %s already", maxExecs, r.Task.Short())
	}
	return of, p, nil
}
