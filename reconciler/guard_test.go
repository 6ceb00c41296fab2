package reconciler_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/musterhq/muster/schema"
)

// guarded is a cell without machines to which commits come, and what an obvious
// reading of the rule says that it runs, by name.
type guarded struct {
	*cell
	jobs map[string]schema.Job
}

func drawGuarded(t *rapid.T) map[string]schema.Job {
	jobs := map[string]schema.Job{}
	for _, user := range []string{"a", "b", "b2"} {
		for i := range 4 {
			if rapid.Bool().Draw(t, "there") {
				j := service(user, fmt.Sprintf("j%d", i), rapid.IntRange(0, 20).Draw(t, "tasks"), "v")
				if rapid.IntRange(0, 5).Draw(t, "prune") == 0 {
					j.Prune = new(bool)
				}
				jobs[j.ID().Short()] = j
			}
		}
	}
	return jobs
}

// compiledOf puts the jobs of each user into a directory, of which the tenants
// ta and tb own them.
func compiledOf(commit string, jobs map[string]schema.Job) schema.Compiled {
	byUser := map[string][]any{}
	for _, name := range slices.Sorted(maps.Keys(jobs)) {
		byUser[jobs[name].User] = append(byUser[jobs[name].User], jobs[name])
	}
	c := compiled(commit, good(pkg(".", schema.Cell{Name: "c", Quota: "off"},
		schema.Tenant{Name: "ta", Users: []string{"a"}, Paths: []string{"a"}}, schema.Tenant{Name: "tb", Users: []string{"b", "b2"}, Paths: []string{"b", "b2"}})))
	for _, user := range slices.Sorted(maps.Keys(byUser)) {
		c.Packages = append(c.Packages, good(pkg(user, byUser[user]...)))
	}
	return c
}

// expect changes the model's jobs as a commit should, of which emptied says that
// it leaves nothing of the repository.
func (g *guarded) expect(next map[string]schema.Job, allow int, emptied bool) {
	total, going, sum := map[string]int{}, map[string]int{}, 0
	gone := map[string]bool{}
	for name, j := range g.jobs {
		n, ok := next[name]
		gone[name] = !ok || n.Tasks == 0 && j.Tasks > 0
		tenant := "t" + j.User[:1]
		for _, guard := range []string{"cell", tenant} {
			total[guard] += j.Tasks
			if gone[name] && j.Prune == nil {
				going[guard] += j.Tasks
			}
		}
		if gone[name] && j.Prune == nil {
			sum += j.Tasks
		}
	}
	after := maps.Clone(next)
	for name, j := range g.jobs {
		tenant := "t" + j.User[:1]
		tooMuch := func(guard string) bool { return emptied || going[guard] > max(10, total[guard]/5) }
		if gone[name] && (j.Prune != nil || sum > allow && (tooMuch("cell") || tooMuch(tenant))) {
			after[name] = j
		}
	}
	g.jobs = after
}

func TestGuardProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := &guarded{cell: newCell()}
		for i := range rapid.IntRange(1, 8).Draw(t, "commits") {
			next, allow := drawGuarded(t), rapid.SampledFrom([]int{0, 0, 5, 30, 200}).Draw(t, "allow")
			if rapid.IntRange(0, 5).Draw(t, "empty") == 0 {
				next = map[string]schema.Job{}
			}
			c := compiledOf(fmt.Sprint(i), next)
			if i > 0 && len(next) == 0 && rapid.Bool().Draw(t, "all") {
				c.Packages, c.Empty, c.Diagnostics = nil, true, []schema.Diagnostic{{Message: "the repository is empty"}}
			}
			c.AllowPrune = allow
			g.commit(c)
			g.expect(next, allow, c.Empty)
			if rapid.Bool().Draw(t, "crash") {
				g.restart()
			}
			g.step()
			if rapid.Bool().Draw(t, "again") { // as a new master reads its head again, with no trailers since
				c.AllowPrune = 0
				g.commit(c)
				g.step()
			}
			runs := map[string]schema.Job{}
			for name, r := range g.state.Jobs {
				if r.Admitted != "" {
					runs[name.Short()] = *g.state.Data[r.Admitted]
				}
			}
			if diff := cmp.Diff(g.jobs, runs); diff != "" {
				t.Fatalf("commit %d (-want +got):\n%s", i, diff)
			}
			g.listed(t, next)
		}
	})
}

// listed: the status names each held job once, and how many tasks a trailer must
// allow.
func (g *guarded) listed(t *rapid.T, next map[string]schema.Job) {
	held, want := map[string]bool{}, map[string]bool{}
	ask := 0
	for name, j := range g.jobs {
		if n, ok := next[name]; !ok || n.Tasks == 0 && j.Tasks > 0 {
			want[name] = true
			if j.Prune == nil {
				ask += j.Tasks
			}
		}
	}
	for _, h := range g.status().Held {
		for _, job := range h.Jobs {
			if held[job] {
				t.Fatalf("%s is held twice", job)
			}
			held[job] = true
		}
		if text := fmt.Sprintf("%s: %d (", schema.AllowPruneTrailer, ask); h.Name.Kind != schema.GuardJob && !strings.Contains(h.Next, text) {
			t.Fatalf("next is %q, want %q in it", h.Next, text)
		}
	}
	if !maps.Equal(held, want) {
		t.Fatalf("held are %v, want %v", held, want)
	}
}

// An empty repository is a mistake in a new cell, for as long as it is one.
func TestEmptyFromTheStart(t *testing.T) {
	t.Parallel()
	c := newCell()
	for _, commit := range []string{"1", "2"} {
		c.commit(schema.Compiled{Commit: commit, Empty: true, Diagnostics: []schema.Diagnostic{{Message: "the repository is empty"}}})
		if s := c.status(); s.Unread == nil || s.Converged {
			t.Errorf("commit %s: unread %v, converged %t", commit, s.Unread, s.Converged)
		}
	}
}
