package compile

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/compile/stage"
)

// A policy that is too much with one package may be so with each that it is for: a commit would take as many times the
// limit as there are packages. Once it was too much with a package, the further ones of its owner have a tenth of the
// limit for it, and less with each. What it was with packages of others says nothing of these: else one owner could
// keep all others from being compiled.

const (
	// heavyPart is by what the limit is divided for a policy that was too much with a package of the owner,
	// and mostHeavyPart at the most.
	heavyPart, mostHeavyPart = 10, 200
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
		n := 0
		for _, o := range owners {
			if o == owner {
				n++
			}
		}
		if n > 0 {
			at, part = append(at, pos), max(part, heavyPart*max(freeBlames, n)/freeBlames)
		}
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
