//go:build !amd64 && !arm64

package compile

// legacy is empty: confine does nothing here.
var legacy []uint32
