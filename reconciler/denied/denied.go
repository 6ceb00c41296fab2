package denied

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/musterhq/muster/schema"
)

const (
	// logEvery is the least time between two lines of the log for one reason, and
	// eventEvery between two events: whoever is refused must fill neither the disk nor
	// the history, which is bounded and forgets its oldest.
	logEvery   = 10 * time.Second
	eventEvery = 10 * time.Minute
	// maxMessage is how much of an error an event holds, in bytes: who is refused
	// may have a say in it.
	maxMessage = 300
)

// Config is what a Log needs.
type Config struct {
	What         string // is refused, such as "request"
	Metric, Help string
	Reasons      []string // all that there are
	Log          *slog.Logger
	// Audit takes the events, if it is set. It must not block.
	Audit func(schema.Event)
}

// Log is the refusals of one kind. It is a prometheus.Collector.
type Log struct {
	*prometheus.CounterVec
	cfg Config

	mu       sync.Mutex // guards what is in reported
	reported map[string]*reported
}

// reported is when one reason was, and how.
type reported struct{ line, event seldom }

// New returns a Log without refusals.
func New(cfg Config) *Log {
	l := &Log{
		CounterVec: prometheus.NewCounterVec(prometheus.CounterOpts{Name: cfg.Metric, Help: cfg.Help}, []string{"reason"}),
		cfg:        cfg, reported: map[string]*reported{},
	}
	for _, reason := range cfg.Reasons {
		l.WithLabelValues(reason) // there from the start, so that a rate is right
		l.reported[reason] = &reported{}
	}
	return l
}

// Refused takes a refusal for one of the reasons, and err, which says more. args are for
// the log.
func (l *Log) Refused(reason string, err error, now time.Time, args ...any) {
	l.WithLabelValues(reason).Inc()
	l.mu.Lock()
	defer l.mu.Unlock()
	was := l.reported[reason]
	if unsaid, ok := was.event.now(now, eventEvery); ok && l.cfg.Audit != nil {
		message := fmt.Sprintf("%s refused (%s): %s", l.cfg.What, reason, clean(err.Error()))
		if unsaid > 0 {
			message += fmt.Sprintf("; %d more since the last such event", unsaid)
		}
		l.cfg.Audit(schema.Event{At: now, Kind: schema.EventRefuse, Message: message})
	}
	if unsaid, ok := was.line.now(now, logEvery); ok {
		l.cfg.Log.Warn(l.cfg.What+" refused", append(args, "reason", reason, "err", err, "unsaid", unsaid)...)
	}
}

// clean returns the beginning of text, on one line.
func clean(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), maxMessage)], "")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}

// seldom is something of which only few are reported.
type seldom struct {
	at     time.Time // of the last that was; zero before the first
	unsaid int       // since
}

// now returns whether one at that time is to be reported, and how many were not since the
// last.
func (s *seldom) now(at time.Time, every time.Duration) (unsaid int, ok bool) {
	if at.Sub(s.at).Abs() < every { // a clock that was set back is no reason for silence
		s.unsaid++
		return 0, false
	}
	unsaid, s.at, s.unsaid = s.unsaid, at, 0
	return unsaid, true
}
