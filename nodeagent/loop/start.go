package loop

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/musterhq/muster/nodeagent"
	"github.com/musterhq/muster/schema"
)

// parallelStarts bounds the starts in flight: each waits for the disk more than
// for the processor.
const parallelStarts = 8

// startTimeout bounds a start: a keeper answers within milliseconds, or never.
const startTimeout = 30 * time.Second

// starter starts incarnations. Its methods may be called from any goroutine, for
// different tasks.
type starter struct {
	disk     *disk
	runtime  Runtime
	networks Networks      // nil: there are none
	free     chan struct{} // has a token for each start in flight
}

// started is what has come of a start.
type started struct {
	nodeagent.StartOutcome
	process Process // nil if it was refused
}

// start starts an incarnation; false if ctx ends before its turn has come.
func (s *starter) start(ctx context.Context, x *nodeagent.Act) (started, bool) {
	unready := readyNetwork(ctx, s.networks, x) // others start meanwhile
	select {
	case s.free <- struct{}{}:
		defer func() { <-s.free }()
	case <-ctx.Done():
		return started{}, false
	}
	// A start that has begun is carried through: its keeper would outlive this agent
	// anyway.
	return s.launch(context.WithoutCancel(ctx), x, unready), true
}

// launch is start in its turn; unready is why the task cannot have its network, nil if it can.
func (s *starter) launch(ctx context.Context, x *nodeagent.Act, unready error) started {
	out := started{StartOutcome: nodeagent.StartOutcome{Written: x.Written}}
	dir := s.disk.dir(x.Task, x.Generation)
	refuse := func(kind schema.CauseKind, err error) started {
		out.Refused = &schema.Cause{Kind: kind, Message: err.Error()}
		if noRoom(err) || noWrite(err) { // on another machine there is a disk
			out.Err, out.Fault = trouble(err), false
			out.Refused.Kind, out.Refused.Resource = schema.CauseOutOfResources, schema.MachineDisk
			out.Refused.Message = string(schema.MachineDisk) + ": " + out.Refused.Message
		}
		return out
	}
	if x.Unkept != nil {
		return refuse(schema.CauseStartFailed, x.Unkept)
	}
	// It may have been lost since, with its directory.
	if _, err := os.Lstat(filepath.Join(dir, assignmentFile)); !x.Written || errors.Is(err, fs.ErrNotExist) {
		if err := s.disk.writeAssignment(x.Assignment); err != nil {
			return refuse(schema.CauseStartFailed, fmt.Errorf("keep the assignment: %w", err))
		}
		out.Written = true
	}
	if x.Clear {
		if err := s.discard(dir); err != nil {
			return refuse(schema.CauseStartFailed, fmt.Errorf("clear the work directory: %w", err))
		}
	}
	err := x.InUse
	if err == nil && !x.Assignment.OwnNetwork { // else it would be in the way of who has it and looks now
		err = checkPorts(x.Assignment.Ports)
	}
	if err != nil {
		return refuse(schema.CausePortInUse, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	out.Tried = true
	a := x.Assignment.ForStep(x.Step, x.Attempt)
	if a.OwnNetwork {
		if err = unready; err == nil {
			a.Network, err = s.networks.Join(x.Assignment)
		}
		if err != nil {
			out.Fault = true
			return refuse(schema.CauseStartFailed, err)
		}
		out.Network = a.Network
	}
	p, err := s.runtime.Start(ctx, incarnationDir(dir, x.Incarnation), a)
	if err != nil {
		out.Fault = !errors.Is(err, nodeagent.ErrTask)
		return refuse(schema.CauseStartFailed, err)
	}
	out.process, out.Process = p, p.State()
	return out
}

// discard removes what the tasks of the generation whose directory dir is have made
// for themselves. None of its incarnations runs.
func (s *starter) discard(dir string) error {
	for _, name := range s.runtime.Remains(dir) {
		if err := s.disk.trash.Put(name); err != nil {
			return err
		}
	}
	return nil
}
