package schema

// CompareBool orders false before true, as cmp.Compare does with what it takes.
func CompareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
