package replay

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/reconciler/plan"
	"github.com/musterhq/muster/schema"
)

// Config is what is replayed.
type Config struct {
	// Cell is the cell as it was saved; its Life and Happens are set by Play.
	Cell plan.Config
	// Records are those of the cell's log, by id. Those until LastEvent are left out, which is the
	// newest that there was when the cell was saved; those until Cell.Now where that is not known: 0.
	Records   []schema.EventRecord
	LastEvent uint64
	// Until are the conditions of which the first ends the replay that comes true.
	Until []plan.Condition
	// Commit returns what a commit declares, with what was said since the one before it.
	Commit func(commit string) (schema.Compiled, error)
	// Release says of which release the cell was, and Plays which one plays; "" if unknown.
	Release, Plays string
}

// Input says how often something came from outside. Field names are stable.
type Input struct {
	What  string `json:"what"`
	Times int    `json:"times"`
}

// Skipped is something that came from outside and could not be played. Field names are stable.
type Skipped struct {
	At   time.Time `json:"at"`
	What string    `json:"what"`
	Of   string    `json:"of,omitempty"` // the machine, the job or the task
	Why  string    `json:"why"`
}

// Result is what a replay comes to. Field names are stable.
type Result struct {
	From   time.Time `json:"from"`
	To     time.Time `json:"to"` // of the last record, or where a condition came true
	Events int       `json:"events"`
	Inputs []Input   `json:"inputs"` // by what they are
	// Skipped are the inputs that could not be played.
	Skipped []Skipped `json:"skipped"`
	// Decisions is how many events of the log are the cell's own doing, and Same how many of
	// these the replay has.
	Decisions int `json:"decisions"`
	Same      int `json:"same"`
	// Apart is by how much the times of those differ at the most.
	Apart       float64      `json:"apartSeconds"`
	Differences []Difference `json:"differences"` // in the order in which they came about
}

// Played is a Result with the cell as it is in the end, or where a condition came true: see
// plan.Cell.Breakpoint.
type Played struct {
	*Result
	Cell *plan.Cell
	Held []string // the conditions that hold in the beginning
}

// player is a replay in progress.
type player struct {
	cfg    Config
	cell   *plan.Cell
	events []schema.Event // of the replay
	out    *Result
}

// within is how far apart two decisions may be that are the same: the log does not say how long
// health checks took. So a cell is followed that long after the last record, and what it decides
// that long before the end of the log may have come after it.
const within = 30 * time.Second

// later reports whether a record came after the cell was saved.
func (c *Config) later(r *schema.EventRecord) bool {
	if c.LastEvent > 0 {
		return r.ID > c.LastEvent
	}
	return r.At.After(c.Cell.Now)
}

// Play replays a log. It errs with a schema.HintedError if the log has nothing that came after the
// cell was saved, and with what Config.Commit errs with.
func Play(cfg Config) (*Played, error) {
	now := cfg.Cell.Now
	records := slices.DeleteFunc(slices.Clone(cfg.Records), func(r schema.EventRecord) bool { return !cfg.later(&r) })
	if len(records) == 0 {
		return nil, schema.Hintf("save the checkpoint first, and print the log later", "the log has no event after %s, when the cell was saved", now.UTC().Format(time.RFC3339))
	}
	p := &player{cfg: cfg, out: &Result{From: now, To: records[len(records)-1].At, Events: len(records), Skipped: []Skipped{}, Differences: []Difference{}}}
	lives, ofTasks := livesOf(records, cfg.Cell.State)
	given := inputs(records, cfg.Cell.State.Head.Commit)
	p.cfg.Cell.Life = lives.life
	p.cfg.Cell.Happens = func(e schema.Event) {
		if e.Kind == schema.EventSchedule {
			lives.assigned(e.Task, e.Generation)
		}
		p.events = append(p.events, e)
	}
	var err error
	if p.cell, err = plan.New(p.cfg.Cell); err != nil {
		return nil, err
	}
	held := p.cell.Until(cfg.Until)
	stopped, err := p.play(given)
	if err != nil {
		return nil, err
	}
	past := func(in input) bool { return in.at.After(p.out.To) }
	p.out.Inputs = count(slices.DeleteFunc(append(given, ofTasks...), past))
	p.compare(records, stopped)
	return &Played{p.out, p.cell, held}, nil
}

// play has all inputs happen at their times; it returns whether a condition came true.
func (p *player) play(given []input) (stopped bool, err error) {
	for i := range given {
		in := &given[i]
		if in.at.After(p.cell.Now()) {
			if stopped, err = p.follow(in.at); err != nil || stopped {
				return stopped, err
			}
		}
		skip, err := in.do(p)
		if err != nil {
			return false, fmt.Errorf("at %s: %w", in.at.UTC().Format(time.RFC3339Nano), err)
		}
		if skip != "" {
			p.out.Skipped = append(p.out.Skipped, Skipped{in.at, string(in.word), in.of, skip})
		}
	}
	return p.follow(p.out.To.Add(within))
}

// follow follows the cell until a time, or until a condition comes true.
func (p *player) follow(until time.Time) (stopped bool, err error) {
	if err := p.cell.Follow(until, 0); err != nil {
		return false, err
	}
	if p.cell.Breakpoint() == nil {
		return false, nil
	}
	p.out.To = p.cell.Now()
	return true, nil
}
