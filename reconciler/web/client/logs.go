package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/musterhq/muster/reconciler/status"
	"github.com/musterhq/muster/schema"
)

// The time between two attempts to go on with a log that was cut off doubles
// from the first to the last.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 5 * time.Second
	// giveUpAfter is how long nothing may answer.
	giveUpAfter = 5 * time.Minute
	// skipAfter is how long the rest of a generation is waited for that nobody
	// answers for, once there is a later one: its machine may be gone for good.
	skipAfter = time.Minute
	// statusWait is how long the master waits for a newer status.
	statusWait = 30 * time.Second
)

// LogCopy is a log that is being copied, and how far that is.
type LogCopy struct {
	Task    string // user/job/index
	Request schema.LogRequest
	Out     io.Writer
	// Say is called with what a reader must know beside the log, such as that some of it
	// was removed before it was read.
	Say func(text string)

	bytes  int64 // written
	at     schema.LogPosition
	read   bool // the generation of at has no more
	warned bool // that it was cut off
}

// next returns where the log goes on.
func (l *LogCopy) next() *schema.LogPosition {
	if l.read {
		return &schema.LogPosition{Generation: l.at.Generation + 1, Incarnation: 1}
	}
	at := l.at
	return &at
}

// errOut marks a failure to write: it is ours.
type errOut struct{ error }

// Bytes returns how much of the log was written.
func (l *LogCopy) Bytes() int64 { return l.bytes }

// CopyLog copies a log. One that is followed goes on where it was when the
// connection, the master or an agent was restarted, and when the task has moved
// to another machine, without a byte lost or twice, until the task has ended for
// good; then it says so. It returns nil when ctx has ended.
func (c *Client) CopyLog(ctx context.Context, l *LogCopy) error {
	l.Request.Framed = true
	chosen := l.Request.Generation > 0 || l.Request.Incarnation > 0 || l.Request.Previous
	wait, since := firstRetry, time.Now()
	for {
		before := l.bytes
		err := c.copyOnce(ctx, l)
		if l.bytes > before {
			wait, since, l.warned = firstRetry, time.Now(), false
		}
		var out errOut
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // what ended it is ctx
		case errors.As(err, &out):
			return out.error
		case err == nil && (!l.Request.Follow || chosen || l.at.Generation == 0):
			return nil
		case err == nil:
			if c.awaitNext(ctx, l) {
				return nil
			}
			l.read = true
			since = time.Now()
		case l.Request.Follow && !chosen && l.at.Generation > 0 && time.Since(since) > skipAfter && c.skip(ctx, l, err):
			since = time.Now()
		case !l.Request.Follow || l.at.Generation == 0 || time.Since(since) > giveUpAfter:
			return err
		case !l.warned:
			l.warned = true
			l.Say(fmt.Sprintf("the log of %s was cut off: %v; it continues when possible", l.Task, err))
		}
		if l.at.Generation > 0 {
			l.Request.From = l.next()
		}
		if sleep(ctx, wait) != nil {
			return nil //nolint:nilerr // what ended it is ctx
		}
		wait = min(2*wait, lastRetry)
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// copyOnce copies what one request brings.
func (c *Client) copyOnce(ctx context.Context, l *LogCopy) error {
	log, err := c.Logs(ctx, l.Task, l.Request)
	if err != nil {
		return err
	}
	defer log.Close()
	frames := schema.NewLogFrames(log)
	for {
		chunk, err := frames.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if chunk.Missed > 0 {
			l.Say(fmt.Sprintf("%d bytes of the log of %s were removed before they could be read", chunk.Missed, l.Task))
		}
		n, err := l.Out.Write(chunk.Data)
		l.bytes += int64(n)
		l.at, l.read = chunk.LogPosition, false
		l.at.Offset += int64(n)
		if err != nil {
			return errOut{err}
		}
	}
}

// skip gives up the rest of a generation if there is a later one, and says so.
func (c *Client) skip(ctx context.Context, l *LogCopy, why error) bool {
	s, _, err := c.Status(ctx, StatusQuery{Group: status.Group{Name: l.Task}})
	if err != nil {
		return false
	}
	for i := range s.Tasks {
		if t := &s.Tasks[i]; t.Name == l.Task && t.Generation > l.at.Generation {
			l.Say(fmt.Sprintf("the rest of the log of %s generation %d cannot be read: %v; it goes on with generation %d", l.Task, l.at.Generation, why, t.Generation))
			l.read, l.warned = true, false
			return true
		}
	}
	return false
}

// awaitNext waits for a generation after the one that was read to its end. It
// returns true, and has said so, when there will be none.
func (c *Client) awaitNext(ctx context.Context, l *LogCopy) (ended bool) {
	q := StatusQuery{Group: status.Group{Name: l.Task}}
	for {
		s, version, err := c.Status(ctx, q)
		var e *Error
		switch {
		case ctx.Err() != nil:
			return true
		case errors.As(err, &e) && e.Code == http.StatusNotFound:
			l.Say(fmt.Sprintf("%s has ended for good: it is no longer in the cell", l.Task))
			return true
		case err != nil:
			return false // asked again, with the log
		}
		for i := range s.Tasks {
			t := &s.Tasks[i]
			if t.Name != l.Task {
				continue
			}
			if t.Generation > l.at.Generation {
				return false
			}
			if t.State == "done" {
				l.Say(l.Task + " has ended for good: it is done")
				return true
			}
		}
		q.After, q.Wait = version, statusWait
	}
}
