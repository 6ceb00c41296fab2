package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/schema"
)

// collapse is the end of an embedded server that cannot go on, as one whose log
// could not be written: etcd would end the process, in a panic on a goroutine of
// its own. Instead that goroutine does nothing more, so that nothing is
// acknowledged, every request fails with what went wrong, and the process ends in
// order. The server's goroutines and files are left to that end.
type collapse struct {
	dir     string      // the data directory
	running atomic.Bool // the server has started

	once sync.Once
	err  error         // set before done is closed
	done chan struct{} // closed when it has happened
}

// OnWrite takes the place of a panic, or of the end of the process, after a
// message of etcd's. It does not return.
func (c *collapse) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	err := errors.New(e.Message)
	for _, f := range fields {
		if cause, ok := f.Interface.(error); ok {
			err = fmt.Errorf("%s: %w", e.Message, cause)
		}
	}
	running, what := c.running.Load(), "start etcd on"
	if running {
		what = "the store has failed in data directory"
	}
	c.once.Do(func() {
		c.err = schema.Hintf(hint(c.dir, err), "%s %s: %w", what, c.dir, err)
		close(c.done)
	})
	if running {
		select {} // it may hold locks, behind which is what was not stored
	}
	runtime.Goexit() // what is called here cleans up, or the start fails without it
}

// over returns a channel that is closed when it has happened. A server outside
// has no collapse, which is nil.
func (c *collapse) over() <-chan struct{} {
	if c == nil {
		return nil
	}
	return c.done
}

// happened returns what went wrong, nil if nothing did.
func (c *collapse) happened() error {
	select {
	case <-c.over():
		return c.err
	default:
		return nil
	}
}

// call returns what f does, or that the server has ended meanwhile: f waits for
// locks of the server, some of which are not given back then.
func call[T any](c *collapse, f func() (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		v, err := f()
		answers <- answer{v, err}
	}()
	select {
	case a := <-answers:
		return a.v, a.err
	case <-c.over():
		var zero T
		return zero, c.err
	}
}

// isFull says whether something could not be written for lack of room. Not all
// that etcd says wraps its cause.
func isFull(err error) bool {
	return containsAny(err.Error(), []string{unix.ENOSPC.Error(), unix.EDQUOT.Error()})
}

// hint says what to do about files that cannot be read or written.
func hint(dir string, err error) string {
	if !isFull(err) {
		return "if its files are damaged, move the directory away, then restore it from a backup or start empty"
	}
	return fmt.Sprintf("make room in the file system %s, then start the master again; nothing that was stored is lost, and tasks run on", room(dir))
}

// room names the file system of a directory, and how full it is.
func room(dir string) string {
	var fs unix.Statfs_t
	mount := mountPoint(dir)
	if err := unix.Statfs(mount, &fs); err != nil || fs.Bsize <= 0 {
		return "of " + dir
	}
	mib := func(blocks uint64) uint64 { return blocks * uint64(fs.Bsize) >> 20 }
	return fmt.Sprintf("mounted at %s (%d of %d MiB are free)", mount, mib(fs.Bavail), mib(fs.Blocks))
}

// mountPoint returns where the file system of a directory is mounted.
func mountPoint(dir string) string {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return dir
	}
	device := func(path string) uint64 {
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil {
			return 0
		}
		return st.Dev
	}
	for dir != "/" && (device(dir) == 0 || device(filepath.Dir(dir)) == device(dir)) {
		dir = filepath.Dir(dir)
	}
	return dir
}
