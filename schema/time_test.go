package schema

import "testing"

// TestParseTime: no more is a time than RFC 3339 says.
func TestParseTime(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"2027-04-01T00:00:00Z":        "2027-04-01 00:00:00 +0000 UTC",
		"2027-04-01T00:00:00.5+02:00": "2027-03-31 22:00:00.5 +0000 UTC",
		"2027-04-01T23:59:59.0-23:59": "2027-04-02 23:58:59 +0000 UTC",
		"2027-04-01T0:00:00Z":         "",
		"2027-04-01T00:00:00,5Z":      "",
		"2027-04-01T00:00:00+24:00":   "",
		"2027-04-01T00:00:00+00:60":   "",
		"2027-04-01T24:00:00Z":        "",
		"2027-02-29T00:00:00Z":        "",
		"2027-04-01t00:00:00z":        "",
		"2027-04-01 00:00:00Z":        "",
		"2027-04-01":                  "",
		"2027-04-01T00:00:00.Z":       "",
		"+2027-04-01T00:00:00Z":       "",
		"2027-04-01T00:00:00Z\n":      "",
	} {
		got, ok := ParseTime(in)
		if ok != (want != "") || ok && got.String() != want {
			t.Errorf("%q: %v, %v, want %q", in, got, ok, want)
		}
	}
}
