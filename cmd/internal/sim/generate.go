package sim

import "math/rand/v2"

// Seeded returns the script of a seed: so many steps, and then calm.
func Seeded(seed uint64, steps int) Script {
	p := profileOf(seed)
	s := Script{
		World: Config{Seed: seed, Machines: 20 + int(seed%5), Cut: int(seed % 4), Slow: seed%2 == 0, Late: seed%3 == 1, Jobs: p.catalogue(), Picky: picky(seed)},
		Calm:  true,
	}
	if p.users > 0 {
		// Twelve are enough to back the quotas of all users, with jobs or without.
		s.World.Machines, s.World.Mixed = 9+3*p.users+int(seed%5), true
	}
	if seed%7 == 3 {
		s.World.EmptyBelow = emptyPercent
	}
	s.Actions = p.generate(seed, steps)
	return s
}

// share is an action and how often it is done, against all others.
type share struct {
	do    ActionKind
	often int
}

// wanted is what the owners of a cell do, and nature what happens to them.
var (
	wanted = []share{
		{"scale", 16}, {"version", 16}, {"priority", 6}, {"remove", 4}, {"break", 4}, {"fix", 8}, {"delete", 2}, {"cordon", 7}, {"drain", 10}, {"gone", 6}, {"promote", 6}, {"suspend", 3}, {"resume", 4}, {"restart", 8}, {"steal", 6}, {"delete-rest", 2}, {"rewind", 3}, {"storm", 3}, {"quota", 4}, {"transfer", 8}, {"relabel", 5}, {"remove-set", 5}, {"forget", 6},
	}
	nature = []share{
		{"kill-master", 4},
		{"freeze-master", 3},
		{"stop-master", 2},
		{"set-clock", 4},
		{"fail-store", 5},
		{"slow-store", 2},
		{"lose-store", 2},
		{"lose-git", 3},
		{"split-master", 3},
		{"move-master", 2},
		{"restore", 1},
		{"go-back", 2},
		{"lose-machine", 2},
		{"lose-disk", 1},
		{"ask-for-name", 3},
		{"overload", 5},
		{"kill-agent", 15},
		{"crash-agent", 15},
		{"stop-agent", 10},
		{"halt", 4},
		{"reboot", 2},
		{"set-machine-clock", 10},
		{"fail-disk", 25},
		{"fill-disk", 4},
		{"trouble", 4},
		{"kill-task", 20},
		{"take-port", 5},
		{"cut", 6},
		{"cut-in", 4},
		{"cut-out", 4},
		{"cut-rack", 1},
		{"cut-half", 1},
		{"delay", 40},
		{"duplicate", 40},
		{"replay", 40},
	}
)

// generate returns a history of so many steps, each an action and one turn: the same for
// the same seed.
func (p *profile) generate(seed uint64, steps int) []Action {
	rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a simulation wants what can be repeated
	wanted, nature := p.skew(wanted, []share{{"revert", 8}, {"back", 4}}), p.skew(nature, nil)
	actions := make([]Action, 0, steps)
	for len(actions) < steps {
		a := Action{Do: Wait, Machine: rng.IntN(1 << 20), Job: p.job(rng), N: rng.IntN(1 << 20), Turns: 1}
		switch n := rng.IntN(100); {
		case n < p.changes:
			a.Do = pick(rng, wanted)
		case n < p.changes+p.faults:
			a.Do = pick(rng, nature)
		}
		if (a.Do == "set-clock" || a.Do == "move-master") && seed%2 == 0 {
			a.Do = "set-machine-clock" // so that what an hour is can be said in some worlds
		}
		actions = append(actions, a)
	}
	return actions
}

func pick(rng *rand.Rand, from []share) ActionKind {
	sum := 0
	for _, s := range from {
		sum += s.often
	}
	if sum == 0 {
		return Wait
	}
	n := rng.IntN(sum)
	for _, s := range from {
		if n -= s.often; n < 0 {
			return s.do
		}
	}
	return Wait
}
