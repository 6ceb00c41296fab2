package screen

import (
	"fmt"
	"strings"
	"time"
)

// Age returns a time that has passed in the largest unit that it has two of, or in
// seconds: "45s", "12m", "30h", "9d".
func Age(d time.Duration) string {
	switch d = max(0, d); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d/time.Second))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d/time.Minute))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d/time.Hour))
	}
	return fmt.Sprintf("%dd", int(d/(24*time.Hour)))
}

// ago returns Age in words: "45 s ago".
func ago(d time.Duration) string {
	units := map[byte]string{'s': "s", 'm': "min", 'h': "h", 'd': "days"}
	s := Age(d)
	return s[:len(s)-1] + " " + units[s[len(s)-1]] + " ago"
}

// named is how many of many things are named.
const named = 3

// Names joins names: the first few of many, and how many more there are.
func Names(names []string, most int) string {
	if more := len(names) - most; most > 0 && more > 1 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
