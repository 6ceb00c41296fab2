package services

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

const (
	// fewSlots is up to how many slots a pool has for the sake of exact weights: shares are
	// exact to a thousandth.
	fewSlots = 1024
	// slotsPerBackend is for pools of many backends: the error of a share is at most a quarter of it.
	slotsPerBackend = 4
	// stickySlots is how many slots a sticky pool has at least for each backend, so that their
	// shares differ little, and minSticky and maxSticky how many it has at least and at most.
	stickySlots = 16
	minSticky   = 64
	maxSticky   = 1 << 16
)

// share is how many slots a backend has.
type share struct {
	at netip.AddrPort
	n  int
}

// sharesOf returns how many slots the backends have, in the order of their addresses. Each has
// one at least.
func sharesOf(backends []Backend) []share {
	weights := make(map[netip.AddrPort]int, len(backends))
	for _, b := range backends {
		if b.Weight > 0 {
			weights[b.At] = b.Weight // one that is named twice is still one
		}
	}
	out := make([]share, 0, len(weights))
	divisor, total := 0, 0
	for at, w := range weights {
		out = append(out, share{at, w})
		divisor = gcd(divisor, w)
		total += w
	}
	slices.SortFunc(out, func(a, b share) int { return a.at.Compare(b.at) })
	if len(out) == 0 {
		return nil
	}
	limit := max(fewSlots, slotsPerBackend*len(out))
	if total/divisor <= limit {
		for i := range out {
			out[i].n /= divisor
		}
		return out
	}
	for i := range out {
		out[i].n = max(1, (out[i].n*limit+total/2)/total)
	}
	return out
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// fill returns slots with the given shares, with as many as can be where they are in old.
func fill(old []netip.AddrPort, shares []share) []netip.AddrPort {
	total := 0
	left := make(map[netip.AddrPort]int, len(shares))
	for _, s := range shares {
		total += s.n
		left[s.at] = s.n
	}
	out := make([]netip.AddrPort, total)
	for i := range min(total, len(old)) {
		if left[old[i]] > 0 {
			left[old[i]]--
			out[i] = old[i]
		}
	}
	next := 0
	for _, s := range shares {
		for range left[s.at] {
			for out[next].IsValid() {
				next++
			}
			out[next] = s.at
		}
	}
	return out
}

// spread returns the slots of a sticky pool: a power of two, and the same on every machine. A
// backend that comes or goes moves few clients between the others. It is Maglev's table
// (Eisenbud et al., NSDI 2016): the backends take turns, as often as their weights say, in
// taking the next free slot of an order of their own.
func spread(shares []share) []netip.AddrPort {
	size := minSticky
	for size < stickySlots*len(shares) && size < maxSticky {
		size *= 2
	}
	type turn struct {
		at         netip.AddrPort
		next, skip uint64
		n, credit  int
	}
	turns := make([]turn, len(shares))
	most := 0
	for i, s := range shares {
		h := hash(s.at)
		// an odd step visits all slots of a power of two
		turns[i] = turn{at: s.at, next: h, skip: h>>32 | 1, n: s.n}
		most = max(most, s.n)
	}
	out := make([]netip.AddrPort, size)
	mask := uint64(size - 1)
	for taken := 0; taken < size; {
		for i := range turns {
			t := &turns[i]
			if t.credit += t.n; t.credit < most {
				continue
			}
			t.credit -= most
			for out[t.next&mask].IsValid() {
				t.next += t.skip
			}
			out[t.next&mask] = t.at
			if taken++; taken == size {
				break
			}
		}
	}
	return out
}

// hash mixes an address and a port to 64 bits (FNV-1a, then the finalizer of MurmurHash3, since
// neighbours differ in few bits).
func hash(at netip.AddrPort) uint64 {
	b := at.Addr().As16()
	h := uint64(14695981039346656037)
	for _, c := range binary.BigEndian.AppendUint16(b[:], at.Port()) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// eligible returns the backends of a port for an address: of its family, and the local ones only
// if those are preferred and there are any.
func eligible(backends []Backend, v6, preferLocal bool) []Backend {
	var all, local []Backend
	for _, b := range backends {
		if !usable(b.At.Addr()) || b.At.Port() == 0 || b.At.Addr().Is6() != v6 || b.Weight <= 0 {
			continue
		}
		all = append(all, b)
		if b.Local {
			local = append(local, b)
		}
	}
	if preferLocal && len(local) > 0 {
		return local
	}
	return all
}
