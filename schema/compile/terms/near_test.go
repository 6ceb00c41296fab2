package terms_test

import (
	"testing"

	"cuelang.org/go/cue/cuecontext"

	"github.com/musterhq/muster/schema/compile/terms"
)

func TestNear(t *testing.T) {
	t.Parallel()
	fits := func(takes, value string) bool {
		return cuecontext.New().CompileString("("+takes+") & "+value).Err() == nil
	}
	for _, c := range []struct{ takes, written, want string }{
		{`*"128M" | =~"^[1-9][0-9]*[MG]$"`, `8GB`, `"8G"`},
		{`=~"^[1-9][0-9]*[MG]$"`, `"8GiB"`, `"8G"`},
		{`=~"^[1-9][0-9]*m$"`, `'500M'`, `"500m"`},
		{`=~"^[A-Z][A-Z0-9_]*$"`, `"MAX-AGE"`, `"MAX_AGE"`},
		{`=~"^/"`, "srv/x", `"/srv/x"`},
		{`=~"^[MG]$"`, "M", ""},
		{`=~"^[0-9]+$"`, "lots", ""},
		{`"a" | "b"`, "ab", ""},
	} {
		if got := terms.NearText(c.takes, c.written, fits); got != c.want {
			t.Errorf("%s for %s: %s, want %s", c.written, c.takes, got, c.want)
		}
	}
	for written, want := range map[string]string{
		`"2027-06-31"`: `"2027-06-30"`, `"2027-02-29T00:00:00Z"`: `"2027-02-28T00:00:00Z"`, `"2027-06-30"`: "", `"2027-13-31"`: "",
		`"2028-02-29"`: "", `"2027-06-00"`: "", `2027-06-31`: "", `"x"`: "",
	} {
		if got := terms.NearDay(written); got != want {
			t.Errorf("%s: %s, want %s", written, got, want)
		}
	}
}
