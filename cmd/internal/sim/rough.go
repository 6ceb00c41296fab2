package sim

import "math/rand/v2"

// roughJobs are the jobs of a world in which machines come and go.
var roughJobs = []string{"a/web", "b/low", "c/once", "d/main", "a/logs", "b/pair", "c/api"}

// roughly is what happens there, every few seconds: little is committed, and much
// becomes of machines, for long enough that they are lost, and that it is forgotten.
var roughly = []share{
	{Wait, 10},
	{"scale", 4},
	{"version", 4},
	{"transfer", 6},
	{"quota", 2},
	{"relabel", 2},
	{"remove-set", 2},
	{"remove", 2},
	{"fix", 2},
	{"drain", 16},
	{"cordon", 3},
	{"gone", 10},
	{"forget", 10},
	{"lose-machine", 24},
	{"halt", 6},
	{"reboot", 4},
	{"lose-disk", 3},
	{"ask-for-name", 4},
	{"cut", 8},
	{"cut-rack", 3},
	{"overload", 8},
	{"kill-master", 4},
	{"split-master", 3},
	{"move-master", 1},
	{"restore", 2},
	{"go-back", 2},
	{"fail-store", 3},
	{"kill-agent", 4},
}

// Rough returns the script of a seed in which machines come and go: a small cell, and so
// many actions, of which each takes up to 20 s, and one in twenty minutes.
func Rough(seed uint64, actions int) Script {
	rng, p := rand.New(rand.NewPCG(seed, 2)), roughProfileOf(seed) //nolint:gosec // a simulation wants what can be repeated
	s := Script{
		World: Config{Seed: seed, Machines: 10 + int(seed%5), Cut: int(seed % 4), Slow: seed%3 == 0, Jobs: p.catalogue(), Mixed: p.rng != nil, Picky: picky(seed)},
		Calm:  true,
	}
	roughly := p.skew(roughly, []share{{"revert", 2}, {"priority", 4}, {"back", 6}})
	for range actions {
		a := Action{Do: pick(rng, roughly), Machine: rng.IntN(1 << 20), Job: p.job(rng), N: rng.IntN(1 << 20), Turns: 1 + rng.IntN(80)}
		if rng.IntN(20) == 0 {
			a.Turns *= 20
		}
		if a.Do == "move-master" && seed%2 == 0 {
			a.Do = "kill-master"
		}
		if a.Do == "drain" && rng.IntN(2) == 0 {
			a.N &^= 3 // a rack
		}
		s.Actions = append(s.Actions, a)
	}
	return s
}
