package compact

import (
	"cmp"
	"time"

	"github.com/musterhq/muster/placement"
	"github.com/musterhq/muster/placement/pack"
	"github.com/musterhq/muster/reconciler/control"
	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/reconciler/control/snapshot"
	"github.com/musterhq/muster/reconciler/intent"
	"github.com/musterhq/muster/reconciler/model"
	"github.com/musterhq/muster/schema"
)

// Config is what is compacted.
type Config struct {
	State    *model.State
	Machines []model.SavedMachine // what they said last
	Now      time.Time            // when that was
	Seeds    int                  // orders of machines that are tried; 0 is 11
}

// Result is what compaction found. Field names are stable.
type Result struct {
	// Used is how many machines hold a task now, those of system jobs apart.
	Used int `json:"used"`
	// Emptied is how many of these running tasks can leave as they are, by moves within what
	// rebalance.emptyBelow of the cell says, which is EmptyBelow: exampleBelow if it says none.
	Emptied    int `json:"emptied"`
	EmptyBelow int `json:"emptyBelow,omitempty"`
	// Unseen is how many machines of which so little is used were not looked at, since that
	// would have taken too long: more may be emptied then.
	Unseen int `json:"unseen,omitempty"`
	pack.Compacted
}

// exampleBelow is of how little of a machine, in percent, it is said whether it could be emptied
// in a cell that empties none.
const exampleBelow = 20

// emptyChecks is how many times a machine may be looked at to find out what could be emptied: some
// seconds, in a cell of any size.
const emptyChecks = 1 << 24

// CellOf returns the machines of a cell and the work that is to have room on them, as if all of it was
// placed anew.
func CellOf(c Config) pack.Cell { return cellOf(factsOf(&c)) }

func factsOf(c *Config) *facts.Facts {
	return facts.New(facts.Stored(c.State), intent.Of(c.State), model.ObservedOf(c.Machines, c.Now), c.Now, nil)
}

func cellOf(f *facts.Facts) pack.Cell {
	w := snapshot.WorkloadOf(f)
	return pack.Cell{Machines: w.Machines, Held: w.Held, Asks: w.Asks}
}

// Compact returns how few machines hold the work of a cell. It errs as pack.Compact does.
func Compact(c Config) (*Result, error) {
	f := factsOf(&c)
	found, err := pack.Compact(cellOf(f), c.Seeds, placement.Options{})
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, chunk := range c.State.Chunks {
		for i := range chunk.Tasks {
			if t := &chunk.Tasks[i]; t.Machine != "" && c.State.Data[t.Data].Kind != schema.System {
				used[t.Machine] = true
			}
		}
	}
	below := cmp.Or(f.Desired.Policy.Moves().EmptyBelow, exampleBelow)
	empty := control.Emptiables(f, below, emptyChecks)
	return &Result{len(used), empty.Machines, below, empty.Of - empty.Looked, *found}, nil
}
