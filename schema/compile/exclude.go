package compile

import (
	"cmp"
	"path"
	"slices"
	"strings"
)

// exclude returns the directories to leave out, each with all below it, so that
// the weights of the rest are at most limit together. It takes the most that
// one directory has, as deep as it can: of a team that commits a hundred
// thousand directories, those of the team and not those of its neighbours.
func exclude(weights map[string]int, limit int) (out []string) {
	total := 0
	for _, w := range weights {
		total += w
	}
	if total <= limit {
		return nil
	}
	sums := map[string]int{}
	children := map[string][]string{}
	for dir, w := range weights {
		for {
			if _, there := sums[dir]; !there && dir != "." {
				children[path.Dir(dir)] = append(children[path.Dir(dir)], dir)
			}
			sums[dir] += w
			if dir == "." {
				break
			}
			dir = path.Dir(dir)
		}
	}
	excess := total - limit
	heaviest := func(a, b string) int { return cmp.Or(cmp.Compare(sums[b], sums[a]), strings.Compare(a, b)) }
	at := "."
	for {
		below := children[at]
		slices.SortFunc(below, heaviest)
		if len(below) > 0 && sums[below[0]] >= excess {
			at = below[0]
			continue
		}
		// No one of these is enough. If most of them had to go, the fault is
		// not theirs but of who put them there.
		gone := 0
		for _, dir := range below {
			if excess <= 0 || at != "." && len(out) >= (len(below)+1)/2 {
				break
			}
			out = append(out, dir)
			gone += sums[dir]
			excess -= sums[dir]
		}
		if excess > 0 {
			return []string{at}
		}
		slices.Sort(out)
		return out
	}
}
