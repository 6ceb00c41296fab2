package sim

import "math/rand/v2"

// Random returns the world of a seed; mutant may be nil.
func Random(seed uint64, mutant *Mutant) *World {
	return New(Config{Seed: seed, Machines: 20 + int(seed%5), Cut: int(seed % 4), Slow: seed%2 == 0, Mutant: mutant})
}

// share is a deed and how often it is done, against all others.
type share struct {
	do    Deed
	often int
}

// wanted is what the owners of a cell do, and nature what happens to them.
var (
	wanted = []share{{"scale", 8}, {"version", 8}, {"priority", 3}, {"remove", 2}, {"break", 2}, {"mend", 4}, {"delete", 1}, {"cordon", 2}}
	nature = []share{
		{"kill-master", 4},
		{"freeze-master", 3},
		{"kill-agent", 20},
		{"crash-agent", 20},
		{"reboot", 3},
		{"silence", 3},
		{"kill-task", 20},
		{"take-port", 5},
		{"fail-store", 4},
	}
)

// Generate returns a history of so many steps, each an action and one turn: the
// same for the same seed.
func Generate(seed uint64, steps int) []Action {
	rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a simulation wants what can be repeated
	actions := make([]Action, 0, steps)
	for len(actions) < steps {
		a := Action{Do: Wait, Machine: rng.IntN(1 << 20), Job: rng.IntN(1 << 20), N: rng.IntN(1 << 20), Turns: 1}
		switch n := rng.IntN(100); {
		case n < 4:
			a.Do = pick(rng, wanted)
		case n < 44:
			a.Do = pick(rng, nature)
		case n < 54:
			a.Do = "speak"
		}
		actions = append(actions, a)
	}
	return actions
}

func pick(rng *rand.Rand, from []share) Deed {
	sum := 0
	for _, s := range from {
		sum += s.often
	}
	n := rng.IntN(sum)
	for _, s := range from {
		if n -= s.often; n < 0 {
			return s.do
		}
	}
	return Wait
}
