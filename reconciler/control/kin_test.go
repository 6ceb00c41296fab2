package control

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/schema"
)

// TestLabelled: the index has all tasks that a selector picks, in order and once, and of those that have one
// of the wanted values of a label no others.
func TestLabelled(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := &labelled{by: map[string]map[string][]int{}}
		var labels []map[string]string
		for i := range rapid.IntRange(0, 12).Draw(t, "tasks") {
			labels = append(labels, rapid.MapOf(rapid.SampledFrom([]string{"a", "b"}), rapid.SampledFrom([]string{"x", "y", "z"})).Draw(t, "labels"))
			l.add(labelledTask{name: schema.JobName{Cell: "c", User: "u", Job: "j"}.Task(i)}, labels[i])
		}
		terms := rapid.SliceOfN(rapid.SampledFrom([]string{"a=x", "a!=x", "b in (x, y)", "b in (y, y)", "a notin (y)", "b", "!a"}), 1, 3).Draw(t, "terms")
		selector, err := schema.ParseSelector(strings.Join(terms, ","))
		if err != nil {
			t.Fatal(err)
		}
		may := l.mayPick(selector)
		if !slices.IsSorted(may) || len(slices.Compact(slices.Clone(may))) != len(may) {
			t.Fatalf("%v are not in order, or some are there twice", may)
		}
		for i := range labels {
			if selector.Matches(labels[i]) && !slices.Contains(may, i) {
				t.Fatalf("%s picks %d of %v, which is not among %v", selector, i, labels, may)
			}
			if has := fmt.Sprint("a=", labels[i]["a"]); len(terms) == 1 && terms[0] == "a=x" && has != "a=x" && slices.Contains(may, i) {
				t.Fatalf("%d with %s is among %v", i, has, may)
			}
		}
	})
}
