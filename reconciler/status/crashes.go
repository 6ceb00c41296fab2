package status

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/reconciler/control/facts"
	"github.com/musterhq/muster/schema"
)

// steadyAfter is how long an incarnation must run after others have ended for its
// machine to count as one on which the task runs well.
const steadyAfter = time.Minute

// crashCount is how the tasks of one job fare on one machine.
type crashCount struct {
	failed      int  // generations that failed, or are restarted again and again
	generations int  // that ended or run there
	healthy     bool // one of them runs well now
}

// crashPattern says where a job crashes. only is the machine if there is but
// one, and others on which the job runs well: then it is the machine rather
// than the job. The text is "" for a job that does not crash.
func crashPattern(by map[string]crashCount) (text, only string) {
	var bad []string
	healthy, failed := 0, 0
	for _, m := range slices.Sorted(maps.Keys(by)) {
		switch c := by[m]; {
		case c.healthy:
			healthy++
		case c.failed > 0:
			bad = append(bad, m)
			failed += c.failed
		}
	}
	switch {
	case len(bad) == 0 || failed < schema.CrashLoop:
		return "", ""
	case len(bad) == 1 && healthy > 0:
		c := by[bad[0]]
		return fmt.Sprintf("crashes on %s only (%d of %s there; healthy on %s)", bad[0], c.failed, schema.Count(c.generations, "generation"), schema.Count(healthy, "other machine")), bad[0]
	case len(bad) == 1:
		return fmt.Sprintf("crashes on %s (%s), and runs nowhere else", bad[0], schema.Count(failed, "generation")), ""
	case healthy > 0:
		return fmt.Sprintf("crashes on %s (%s); healthy on %s", some(bad), schema.Count(failed, "generation"), schema.Count(healthy, "other machine")), ""
	}
	return fmt.Sprintf("crashes everywhere: on %s (%s)", some(bad), schema.Count(failed, "generation")), ""
}

// some lists the first names, and says how many more there are.
func some(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// crashes counts how the tasks of a job fare on each machine, since it has the
// data that it has: of what is stored, and of what agents say now.
func crashes(since time.Time, records []reportedRecord, now time.Time) map[string]crashCount {
	by := map[string]crashCount{}
	for _, r := range records {
		for _, c := range r.Causes {
			if c.At.Before(since) || c.Machine == "" {
				continue
			}
			n := by[c.Machine]
			n.generations++
			if c.Kind == schema.CauseFailed || c.Kind == schema.CauseStartFailed {
				n.failed++
			}
			by[c.Machine] = n
		}
		if r.Machine == "" || r.Stop != nil {
			continue
		}
		said := r.said
		if said.TaskStatus == nil || said.End != nil {
			continue
		}
		n := by[r.Machine]
		n.generations++
		steady := facts.Works(said.TaskStatus) && (len(said.Exits) == 0 || now.Sub(said.Since) >= steadyAfter)
		n.healthy = n.healthy || steady
		if !steady && max(schema.Crashes(said.Exits), said.Failures) >= schema.CrashLoop {
			n.failed++
		}
		by[r.Machine] = n
	}
	return by
}

// crashNote describes a machine on which several jobs crash that run well on
// others.
func crashNote(jobs []string) []string {
	if len(jobs) < 2 {
		return nil
	}
	return []string{fmt.Sprintf("%d jobs crash here only, and run well elsewhere: %s", len(jobs), some(jobs))}
}
