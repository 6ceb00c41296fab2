package events

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/musterhq/muster/reconciler/failpoint"
	"github.com/musterhq/muster/schema"
)

// intentFile holds what was intended last: a header, then an event a line.
const intentFile = "intent.jsonl"

// intent is the header of the file of that name.
type intent struct {
	After uint64 `json:"after"` // the newest id when it was written
}

// Intend keeps the events of decisions that are about to be stored, as one write to a file,
// so that a master that is killed before it appends them loses none: the next Open of the
// directory appends them. A machine that stops may lose them, as the file is not synced.
// Settle is to follow before the next Intend. If the disk cannot be written to, they are
// kept in memory only.
func (l *Log) Intend(events []schema.Event) {
	l.disk.Lock()
	defer l.disk.Unlock()
	l.flush() // what was intended before is appended there
	l.mu.Lock()
	newest := l.next - 1
	l.mu.Unlock()
	l.intended = events
	l.tried(&l.unsure, l.writeIntent(intent{newest}, events))
}

// Settle appends what was intended last, if err is nil. Otherwise it is not known whether
// it was stored, and an event before them says so. Events that were appended as doubtful
// already are not repeated: it is the same decision, which failed once more.
func (l *Log) Settle(err error) {
	l.disk.Lock()
	events := l.intended
	l.intended = nil
	if err == nil {
		l.doubted = nil
	} else if l.doubts(events) {
		events = nil
	} else {
		l.doubted = events
		events = doubtful(events)
	}
	l.disk.Unlock()
	l.Append(events)
}

// doubts reports whether the same events were doubted last, whenever that was.
func (l *Log) doubts(events []schema.Event) bool {
	return slices.EqualFunc(l.doubted, events, func(a, b schema.Event) bool {
		a.At, a.Input = b.At, b.Input
		return a == b
	})
}

// doubtful returns events with one before that says that they may not be true.
func doubtful(events []schema.Event) []schema.Event {
	if len(events) == 0 {
		return nil
	}
	message := "it is not known whether the write of the next event succeeded; if not, the decision is made again"
	if len(events) > 1 {
		message = fmt.Sprintf("it is not known whether the writes of the next %d events succeeded; where not, the decision is made again", len(events))
	}
	return append([]schema.Event{{At: events[0].At, Kind: schema.EventMaster, Message: message}}, events...)
}

func (l *Log) writeIntent(header intent, events []schema.Event) error {
	if l.intentions == nil {
		f, err := os.OpenFile(filepath.Join(l.cfg.Dir, intentFile), os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		l.intentions = f
	}
	var lines bytes.Buffer
	if err := json.NewEncoder(&lines).Encode(header); err != nil {
		return err
	}
	for _, e := range events {
		if line, err := json.Marshal(cut(e)); err == nil { // a time beyond the year 9999 is logged by Append
			lines.Write(append(line, '\n'))
		}
	}
	failpoint.EventIntent.Before()
	defer failpoint.EventIntent.After()
	if err := l.intentions.Truncate(0); err != nil {
		return err
	}
	_, err := l.intentions.WriteAt(lines.Bytes(), 0)
	return err
}

// logIntended appends what was intended and is not in the log, as doubtful. A
// line that is torn was never acted on.
func (l *Log) logIntended() error {
	text, err := os.ReadFile(filepath.Join(l.cfg.Dir, intentFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	header, lines, _ := bytes.Cut(text, []byte{'\n'})
	var in intent
	if json.Unmarshal(header, &in) != nil {
		return nil //nolint:nilerr // torn: see above
	}
	appended := map[schema.Event]bool{}
	for _, r := range l.recent() {
		if r.ID > in.After {
			appended[alike(r.Event)] = true
		}
	}
	var lost []schema.Event
	for line := range bytes.Lines(lines) {
		var e schema.Event
		if !bytes.HasSuffix(line, []byte{'\n'}) || json.Unmarshal(line, &e) != nil {
			continue
		}
		if !appended[alike(e)] {
			lost = append(lost, e)
		}
	}
	l.Append(doubtful(lost))
	return nil
}

// alike returns what two events that were read have in common when they are the same one.
func alike(e schema.Event) schema.Event {
	e.At, e.Input = e.At.UTC(), nil
	return e
}
