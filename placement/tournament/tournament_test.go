package tournament

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhq/muster/placement/layout"
)

// naive returns the best candidate by looking at all, -1 if there is none in the domain that
// decides.
func naive(s *Standing, open []bool) int32 {
	var all []int32
	for b := range s.Blocks {
		for i := s.Blocks[b].From; i < s.Blocks[b].To; i++ {
			if s.Score[i] > Infeasible {
				all = append(all, i)
			}
		}
	}
	slices.SortFunc(all, func(i, k int32) int {
		a, b := s.RankAs(i), s.RankAs(k)
		switch {
		case a == b:
			return int(i - k)
		case a.Before(b):
			return -1
		}
		return 1
	})
	// Where the fewest of the job are decides: if that domain is closed there is none.
	if len(all) == 0 || open != nil && !open[s.Blocks[s.BlockOf(all[0])].Domain] {
		return -1
	}
	return all[0]
}

func TestBestIsThatOfALookAtAll(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		score := rapid.SampledFrom([]float32{Infeasible, 1, 2, 3})
		s := Standing{Tally: &Tally{}}
		domains := rapid.IntRange(1, 4).Draw(t, "domains")
		s.Tally.Grow(domains)
		for at, end := int32(0), int32(rapid.IntRange(1, 30).Draw(t, "candidates")); at < end; {
			to := min(end, at+int32(rapid.IntRange(1, 6).Draw(t, "size")))
			s.Blocks = append(s.Blocks, layout.Block{From: at, To: to, Domain: int32(rapid.IntRange(0, domains-1).Draw(t, "domain")), Best: -1})
			for ; at < to; at++ {
				s.Score = append(s.Score, score.Draw(t, "score"))
			}
		}
		for b := range s.Blocks {
			s.FindBest(&s.Blocks[b])
		}
		s.RankAll()
		for range 20 {
			switch {
			case rapid.Bool().Draw(t, "task"): // a task comes, which nobody says
				s.Tally.Add(int32(rapid.IntRange(0, domains-1).Draw(t, "at")), 1, 1)
			default:
				i := int32(rapid.IntRange(0, len(s.Score)-1).Draw(t, "candidate"))
				s.Score[i] = score.Draw(t, "score")
				b := s.BlockOf(i)
				s.FindBest(&s.Blocks[b])
				s.Rank(int32(b))
			}
			first, second := s.Best(nil)
			if want := naive(&s, nil); first != want {
				t.Fatalf("the best is %d, want %d", first, want)
			}
			if second == first && first >= 0 || second >= 0 && s.Score[second] == Infeasible {
				t.Fatalf("the second best of %d is %d", first, second)
			}
		}
		open := make([]bool, domains)
		for d := range open {
			open[d] = rapid.Bool().Draw(t, "open")
		}
		first, second := s.Best(open)
		if want := naive(&s, open); first != want || second >= 0 && !open[s.Blocks[s.BlockOf(second)].Domain] {
			t.Fatalf("of open domains the best are %d and %d, want %d", first, second, want)
		}
	})
}
