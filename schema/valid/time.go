package valid

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/lazyregexp"
)

// time checks a time and returns it in UTC, so that the same moment is the same
// data however it was written.
func (c *check) time(path []string, r *Rule, s string) any {
	t, ok := schema.ParseTime(s)
	if !ok {
		c.add(Problem{Rule: schema.RuleInvalidValue, Path: path, Message: fmt.Sprintf("invalid value %q", short(s)), Expected: r.String(), Hint: timeHint(s)})
		return Broken{}
	}
	if y := int64(t.Year()); y < r.Min || y > r.Max {
		c.add(Problem{
			Rule: schema.RuleOutOfRange, Path: path, Message: fmt.Sprintf("%s is out of range", short(s)),
			Expected: fmt.Sprintf("a time of the years %d to %d, in UTC", r.Min, r.Max),
		})
		return Broken{}
	}
	return t.Format(time.RFC3339Nano)
}

var (
	dateForm = lazyregexp.New(`^([0-9]{4})-([0-9]{2})-([0-9]{2})`)
	// looseForm is a date with or without a time, and with or without a zone.
	looseForm = lazyregexp.New(`^([0-9]{4})[-/.]([0-9]{1,2})[-/.]([0-9]{1,2})(?:[Tt ]+([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:[.,][0-9]+)?)?)? *([Zz]|UTC|GMT|[-+][0-9]{2}:?[0-9]{2})?$`)
)

// timeHint says which day there is not, or how to write what was probably
// meant.
func timeHint(s string) string {
	if len(s) > maxWord {
		return ""
	}
	if m := dateForm.FindStringSubmatch(s); m != nil {
		year, month, day := atoi(m[1]), atoi(m[2]), atoi(m[3])
		if last := daysIn(year, month); month >= 1 && month <= 12 && (day < 1 || day > last) {
			return fmt.Sprintf("%s %d has the days 1 to %d", time.Month(month), year, last)
		}
	}
	m := looseForm.FindStringSubmatch(s)
	if m == nil {
		return ""
	}
	zone := strings.ToUpper(m[7])
	switch {
	case zone == "" || zone == "UTC" || zone == "GMT":
		zone = "Z"
	case len(zone) == len("+0200"):
		zone = zone[:3] + ":" + zone[3:]
	}
	guess := fmt.Sprintf("%s-%02d-%02dT%02d:%02d:%02d%s", m[1], atoi(m[2]), atoi(m[3]), atoi(m[4]), atoi(m[5]), atoi(m[6]), zone)
	if _, ok := schema.ParseTime(guess); !ok {
		return ""
	}
	return fmt.Sprintf("did you mean %q?", guess)
}

// atoi returns the number that a few digits stand for, 0 for none.
func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// daysIn returns the number of days of a month of a year.
func daysIn(year, month int) int {
	return time.Date(year, time.Month(month)+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

// quota checks what ties the fields of a quota together: its period must have a
// length.
func (c *check) quota(quota map[string]any) {
	from, hasFrom := quota["from"].(string)
	until, hasUntil := quota["until"].(string)
	if !hasFrom || !hasUntil {
		return
	}
	begin, _ := schema.ParseTime(from)
	end, _ := schema.ParseTime(until)
	if end.After(begin) {
		return
	}
	p := Problem{
		Rule: schema.RuleNoEffect, Path: []string{"until"}, Message: fmt.Sprintf("%s is not after from, %s", until, from),
		Expected: "a later time than from", Hint: "the quota counts from \"from\" until just before \"until\"",
	}
	if end.Before(begin) {
		p.Hint = "are from and until swapped?"
	}
	c.add(p)
}
