package schema

import "time"

// ParseTime reads a time as RFC 3339 §5.6 has it, with the letters T and Z in upper case, and returns it in UTC;
// false if it is none. Package time takes more: hours of one digit, fractions after a comma, and offsets of a day.
func ParseTime(s string) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, false
	}
	switch { // of what it takes, each part has the length that it is to have before the ones that are looked at
	case s[len("2006-01-02T")+1] == ':', s[len("2006-01-02T15:04:05")] == ',':
		return time.Time{}, false
	case s[len(s)-1] != 'Z' && (s[len(s)-len("07:00"):] >= "24" || s[len(s)-len("00"):] >= "60"):
		return time.Time{}, false
	}
	return t.UTC(), true
}
