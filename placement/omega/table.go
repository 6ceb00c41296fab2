package omega

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Row is one experiment of a table.
type Row struct {
	Name   string `json:"name"`
	Config Config `json:"config"`
	Result Result `json:"result"`
}

// Cell is what experiments begin with that are to be compared: 1,000 machines that are used by
// six tenths, three batch jobs a second of 10 tasks for 80 s, a service every 5 s of 5 tasks for
// half an hour, for four minutes; a decision takes 100 ms and 5 ms for each task, as in the paper.
func Cell() Config {
	return Config{
		Architecture: SharedState, Machines: 1000, Used: 0.6, Schedulers: 1, Length: 4 * time.Minute,
		Batch: Jobs{
			Every: time.Second / 3, Tasks: 10, Stays: 80 * time.Second, Share: 0.03, PerJob: 100 * time.Millisecond, PerTask: 5 * time.Millisecond,
		},
		Service: Jobs{
			Every: 5 * time.Second, Tasks: 5, Stays: 30 * time.Minute, Share: 0.06, PerJob: 100 * time.Millisecond, PerTask: 5 * time.Millisecond,
		},
	}
}

// Speed is how long a decision takes.
type Speed struct {
	Name            string
	PerJob, PerTask time.Duration
}

// Ours is what muster's decisions take, rounded up: a plan on a fork, see
// docs/performance-placement.md.
func Ours() Speed { return Speed{"muster", 100 * time.Microsecond, 80 * time.Microsecond} }

// Curve varies, of a configuration, the number of schedulers and how long decisions take.
func Curve(c Config, schedulers []int, speeds []Speed) ([]Row, error) {
	var rows []Row
	for _, v := range speeds {
		for _, n := range schedulers {
			c := c
			c.Schedulers = n
			for _, j := range []*Jobs{&c.Batch, &c.Service} {
				j.PerJob, j.PerTask = v.PerJob, v.PerTask
			}
			r, err := Run(c)
			if err != nil {
				return nil, err
			}
			rows = append(rows, Row{fmt.Sprintf("%s, %d", v.Name, n), c, r})
		}
	}
	return rows, nil
}

// Compare has each architecture decide the same jobs, where the decision about a service takes
// ever longer. Where there are several schedulers, there are one for services and one for batch
// jobs.
func Compare(c Config, perService []time.Duration) ([]Row, error) {
	var rows []Row
	for _, takes := range perService {
		for _, a := range Architectures() {
			c := c
			c.Architecture, c.Service.PerJob = a, takes
			c.Schedulers, c.Apart = 2, true
			if c.monolithic() {
				c.Schedulers, c.Apart = 1, false
			}
			r, err := Run(c)
			if err != nil {
				return nil, err
			}
			rows = append(rows, Row{fmt.Sprintf("%s, %s", a, takes), c, r})
		}
	}
	return rows, nil
}

// WriteTable writes experiments for people.
func WriteTable(w io.Writer, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "EXPERIMENT\tCONFLICTS A COMMIT\tOF TASKS\tBUSY\tBUSIEST\tBATCH WAITS\tSERVICE WAITS\tABANDONED\tUNFINISHED")
	for _, row := range rows {
		r := &row.Result
		fmt.Fprintf(t, "%s\t%.2f %%\t%.2f %%\t%.1f %%\t%.1f %%\t%s\t%s\t%d\t%d\n", row.Name,
			100*r.ConflictFraction, 100*float64(r.TaskConflicts)/float64(max(r.Tasks+r.TaskConflicts, 1)), 100*r.Busy, 100*r.Busiest,
			r.Batch.Wait.Round(100*time.Microsecond), r.Service.Wait.Round(100*time.Microsecond),
			r.Batch.Abandoned+r.Service.Abandoned, r.Batch.Unfinished+r.Service.Unfinished)
	}
	return t.Flush()
}
