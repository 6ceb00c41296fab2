package placement

import "encoding/binary"

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
