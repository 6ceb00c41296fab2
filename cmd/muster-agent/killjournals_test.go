package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/musterhq/muster/schema"
)

// checkJournals compares what the agents reported with what the tasks wrote.
func (h *killing) checkJournals() {
	h.t.Helper()
	starts, ends, befores := map[string]int{}, map[string]int{}, map[string]int{}
	for _, s := range h.slots {
		b, err := os.ReadFile(h.journal(s))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			h.t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			switch f := strings.Fields(line); f[0] {
			case "start":
				starts[f[1]]++
			case "end":
				ends[f[1]+" "+f[2]]++
			case "before":
				befores[f[1]]++
			default:
				h.t.Errorf("%s.%d wrote %q", s.job, s.index, strings.TrimSpace(line))
			}
		}
	}
	if (len(befores) > 0) != (h.image != "") {
		h.t.Errorf("before how many tasks commands have run, by generation: %v", befores)
	}
	for _, g := range slices.Sorted(maps.Keys(h.reported)) {
		k := h.reported[g]
		if n := starts[fmt.Sprint(g)]; n > k.incarnation {
			h.t.Errorf("%s generation %d was started %d times in %d incarnations", k.slot, g, n, k.incarnation)
		}
		for _, e := range k.exits {
			wrote := ends[fmt.Sprintf("%d %d", g, e.Code)]
			if strings.Contains(e.Message, "before[0]") {
				wrote = befores[fmt.Sprint(g)]
			}
			if e.Code >= 0 && wrote == 0 {
				h.t.Errorf("%s generation %d: incarnation %d is said to have %s, and wrote nothing of it", k.slot, g, e.Incarnation, e)
			}
		}
		h.checkEnd(g, k, ends)
	}
}

// checkEnd checks that a generation ended for a reason: what finished wrote so,
// and what wrote so has finished, unless its keeper was killed before it could
// report it, or it was asked to stop between its last line and its exit.
func (h *killing) checkEnd(g uint64, k *reportedEnd, ends map[string]int) {
	h.t.Helper()
	if k.dead == nil {
		return
	}
	finished := ends[fmt.Sprintf("%d 0", g)]
	unreported := 0
	for _, e := range k.exits {
		if e.Code < 0 || strings.Contains(e.Message, "SIGTERM was sent") {
			unreported++
		}
	}
	switch {
	case k.dead.Kind == schema.CauseStartFailed:
		h.t.Errorf("%s generation %d: %s", k.slot, g, k.dead)
	case k.dead.Kind == schema.CauseFinished && finished == 0:
		h.t.Errorf("%s generation %d: %s, and it wrote nothing of it", k.slot, g, k.dead)
	case finished > 1+unreported:
		h.t.Errorf("%s generation %d has finished %d times; exits %v", k.slot, g, finished, k.exits)
	case finished > 0 && k.dead.Kind != schema.CauseFinished && unreported == 0:
		h.t.Errorf("%s generation %d has finished, and is called %s; exits %v", k.slot, g, k.dead, k.exits)
	}
}
