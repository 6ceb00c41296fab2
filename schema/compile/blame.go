package compile

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/stage"
)

// A policy that is too much with one package may be so with each that it is for: a commit would take as many times the
// limit as there are packages. Once it was too much with a package, those of other owners have a quarter of the
// limit for it, and once it was with packages of two owners, all have a tenth, and less with each. It holds up none of
// them by itself: else one owner could keep all others from being compiled.

const (
	// doubtfulPart is by what the limit is divided for a policy that was too much with another owner's package,
	// heavyPart when it was with two owners' or the owner's own, and mostHeavyPart at the most.
	doubtfulPart, heavyPart, mostHeavyPart = 4, 10, 200
	// freeBlames is how many packages change nothing of that.
	freeBlames = 4
)

// blamed are the owners of packages that policies are too much with, each as often as it has one, by where a policy
// stands.
type blamed map[schema.Position][]string

// add counts a package of an owner for the policy at a place.
func (b blamed) add(at schema.Position, owner string) { b[at] = append(b[at], owner) }

// heavy returns the policies that are to have a part of the limits with a package of an owner, sorted, and by what these
// are divided.
func (b blamed) heavy(owner string) (at []schema.Position, part int) {
	for pos, owners := range b {
		others := slices.Compact(slices.Sorted(slices.Values(owners)))
		by := doubtfulPart
		if len(others) > 1 || slices.Contains(others, owner) {
			by = heavyPart * max(freeBlames, len(owners)) / freeBlames
		}
		at, part = append(at, pos), max(part, by)
	}
	slices.SortFunc(at, schema.Position.Compare)
	return at, min(part, mostHeavyPart)
}

// heavyWith says of a policy that it is too much, in the same words for each package; why and hint are those of one.
func heavyWith(at *stage.Policy, why, hint string) schema.Diagnostic {
	return schema.Diagnostic{
		Severity: schema.Error, Rule: schema.RuleLimit, Position: at.Position, Field: at.Field,
		Message: "the policy takes too much with the objects that it is for",
		Hint:    fmt.Sprintf("seen with %s: %s; %s", at.Object, why, cmp.Or(hint, "write it so that it takes less")),
	}
}
