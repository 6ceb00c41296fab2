package placement

import (
	"encoding/binary"
	"hash/fnv"
)

// together makes one key of two numbers.
func together(a, b int32) uint64 { return uint64(a)<<32 | uint64(b) }

func boolByte(v bool) byte {
	if v {
		return 1
	}
	return 0
}

func appendStrings(b []byte, list ...string) []byte {
	b = binary.AppendVarint(b, int64(len(list)))
	for _, v := range list {
		b = append(binary.AppendVarint(b, int64(len(v))), v...)
	}
	return b
}

func hash(s string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	return mix(h.Sum64())
}

// mix spreads a hash over all bits (the finaliser of SplitMix64).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
