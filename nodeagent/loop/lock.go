package loop

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/musterhq/muster/schema/filelock"
)

// ErrInUse is in New's error when another agent has the state directory.
var ErrInUse = errors.New("another agent uses it")

// Lock is a state directory that is ours: of all agents, by whatever path they
// name it, one has it at a time. The kernel gives it back when its process ends,
// however it ends.
type Lock struct{ held *filelock.Lock }

// lockFor is how long a held lock is waited for: a child that an agent was just forking
// when it was killed has the agent's lock until its exec.
const lockFor = 2 * time.Second

// Take makes the state directory if it is not there, and takes its lock. The
// error is ErrInUse, with the pid, when another agent has it.
func Take(root string) (*Lock, error) {
	if err := os.MkdirAll(root, dirMode); err != nil {
		return nil, fmt.Errorf("state directory %s: %w", root, err)
	}
	held, err := filelock.Take(filelock.Config{Dir: root, File: lockFile, Whole: true, Owner: strconv.Itoa(os.Getpid()), Wait: lockFor})
	if by := (*filelock.HeldError)(nil); errors.As(err, &by) {
		err = ErrInUse
		if by.Owner != "" {
			err = fmt.Errorf("%w (pid %s)", ErrInUse, by.Owner)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("state directory %s: %w", root, err)
	}
	return &Lock{held}, nil
}

// Close gives the lock back. It may be called more than once.
func (l *Lock) Close() error { return l.held.Close() }
