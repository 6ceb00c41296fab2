package terms

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/schema/lazyregexp"
)

// mostNear bounds how long a text may be for which a near one is looked for.
const mostNear = 40

// NearText returns the text, in quotes, that an expression with a pattern takes and that has the least other than what is
// written, in quotes or not: a character or two less, other capitals, another separator. It is "" if there is none, or the
// expression takes what is written. fits reports whether an expression takes a value.
func NearText(takes, written string, fits func(takes, value string) bool) string {
	text := strings.Trim(written, `"'`)
	if !strings.Contains(takes, "=~") || text == "" || len(text) > mostNear || fits(takes, strconv.Quote(text)) {
		return ""
	}
	near := []string{
		strings.ReplaceAll(text, "-", "_"), strings.ReplaceAll(text, "_", "-"), strings.ReplaceAll(text, ".", "-"),
		strings.ToUpper(text), strings.ToLower(text), "/" + text,
	}
	for n := 1; n <= 2; n++ {
		for i := len(text) - n; i >= 0; i-- {
			near = append(near, text[:i]+text[i+n:])
		}
	}
	for _, s := range near {
		if s != "" && fits(takes, strconv.Quote(s)) {
			return strconv.Quote(s)
		}
	}
	return ""
}

// day is a text that begins with a date.
var day = lazyregexp.New(`^"[0-9]{4}-[0-9]{2}-[0-9]{2}`)

// NearDay returns a text, in quotes, that begins with a day which there is not, such as the 31st of June, with the last
// day of that month; "" of any other one.
func NearDay(written string) string {
	date := day.FindString(written)
	if date == "" {
		return ""
	}
	month, err := time.Parse(`"2006-01`, date[:len(`"2006-01`)])
	if err != nil {
		return ""
	}
	last := month.AddDate(0, 1, -1)
	if _, err := time.Parse(`"2006-01-02`, date); err == nil || date[len(date)-2:] <= fmt.Sprintf("%02d", last.Day()) {
		return ""
	}
	return last.Format(`"2006-01-02`) + written[len(date):]
}
