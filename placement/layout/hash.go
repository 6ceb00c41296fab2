package layout

import "hash/fnv"

// Hash returns a number for a name, which any machine makes alike.
func Hash(name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name))
	return Mix(h.Sum64())
}

// Mix spreads a hash over all bits (the finaliser of SplitMix64).
func Mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
