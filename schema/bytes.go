package schema

import (
	"fmt"
	"strings"
)

// Bytes writes n bytes for people, with a binary unit and at most one digit
// after the point: "73 MiB".
func Bytes(n int64) string {
	units := []string{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"}
	f, i := float64(n), 0
	for ; f >= 1024 && i < len(units)-1; i++ {
		f /= 1024
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0") + " " + units[i]
}
