package schema

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// MaxLabelKey and MaxLabelValue are the longest that a label's key and value
// may be, in bytes.
const (
	MaxLabelKey   = 63
	MaxLabelValue = 255
)

// LabelKeyGrammar says in words what the key of a label is.
const LabelKeyGrammar = "1 to 63 letters, digits and inner . _ - /"

// CheckLabel errs unless key and value are a label's: a key of letters, digits
// and inner . _ - /, and a value that is one line of printable text.
func CheckLabel(key, value string) error {
	if !IsLabelKey(key) {
		return fmt.Errorf("label %.80q: want a key of %s", key, LabelKeyGrammar)
	}
	if len(value) > MaxLabelValue {
		return fmt.Errorf("label %s: its value has %d bytes: want at most %d", key, len(value), MaxLabelValue)
	}
	for _, r := range value {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return fmt.Errorf("label %s: value %.80q: want printable text of one line", key, value)
		}
	}
	return nil
}

// IsLabelKey reports whether s can be the key of a label.
func IsLabelKey(s string) bool {
	if len(s) < 1 || len(s) > MaxLabelKey || !alnum(s[0]) || !alnum(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !alnum(c) && c != '.' && c != '_' && c != '-' && c != '/' {
			return false
		}
	}
	return true
}

func alnum(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
