package valid

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/schema"
)

// didYouMean returns a hint that names what word was probably meant to be, or
// "". What users of other systems write comes first, then the nearest of words.
func didYouMean(word string, words []string, alias map[string]string) string {
	if to, ok := alias[word]; ok {
		if strings.HasPrefix(to, "container.") || to == "task.container" {
			return "containers are not supported yet; process.command runs a program of the machine"
		}
		if strings.Contains(to, " ") {
			return "write " + to
		}
		return fmt.Sprintf("did you mean %s?", to)
	}
	if best := Nearest(word, words); best != "" {
		return fmt.Sprintf("did you mean %s?", best)
	}
	return ""
}

// maxWord is longer than any field name, in bytes.
const maxWord = 64

// Nearest returns the one of words that word is probably a misspelling of, ""
// if there is none.
func Nearest(word string, words []string) string {
	if len(word) > maxWord {
		return ""
	}
	best, distance := "", 1+len(word)/3
	for _, w := range words {
		if d := editDistance(strings.ToLower(word), strings.ToLower(w)); d <= distance && (best == "" || d < distance) {
			best, distance = w, d
		}
	}
	return best
}

// editDistance counts the insertions, deletions, replacements and swaps of
// neighbours that turn a into b (optimal string alignment), over bytes. Words
// longer than a field name ever is are far from everything.
func editDistance(a, b string) int {
	if len(a) > maxWord || len(b) > maxWord {
		return maxWord
	}
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

var notName = regexp.MustCompile(`[^a-z0-9]+`)

// nameHint returns the valid name nearest to s, if there is one.
func nameHint(s string) string {
	if len(s) > 2*schema.MaxNameLen {
		return ""
	}
	name := strings.Trim(notName.ReplaceAllString(strings.ToLower(s), "-"), "-")
	if name == s || schema.CheckName(name) != nil {
		return ""
	}
	return fmt.Sprintf("did you mean %q?", name)
}

var (
	amountForm   = regexp.MustCompile(`^([0-9]+) ?([KMGTPE]i?)?B?$`)
	milliForm    = regexp.MustCompile(`^([0-9]+)m$`)
	durationForm = regexp.MustCompile(`^([0-9]+)(s|m|h)$`)
)

// typeHint says how to write v as what r accepts.
func typeHint(r *Rule, v any) string {
	switch v := v.(type) {
	case string:
		switch r.Type {
		case Int, Priority:
			return numberHint(r, v)
		case List:
			return fmt.Sprintf("write a list: [%s]", listed(r, v))
		case Bool:
			return boolHint(v)
		}
	case json.Number:
		if r.Type == String {
			return fmt.Sprintf("write it as a string: %q", v)
		}
		if r.Type == List {
			return fmt.Sprintf("write a list: [%q]", v)
		}
		if r.Type == Struct && len(r.Fields) == 1 && r.Fields[0].Rule.Type == Int {
			return fmt.Sprintf("did you mean {%s: %s}?", r.Fields[0].Name, short(v.String()))
		}
	case bool:
		if r.Type == String {
			return fmt.Sprintf("write it as a string: %q", strconv.FormatBool(v))
		}
		if r.Type == Enum && slices.Contains(r.Words, "on") {
			return fmt.Sprintf("did you mean %q?", map[bool]string{true: "on", false: "off"}[v])
		}
	}
	return ""
}

// boolHint says which boolean a word stands for.
func boolHint(s string) string {
	switch strings.ToLower(s) {
	case "true", "yes", "on", "y":
		return "write it without quotes: true"
	case "false", "no", "off", "n":
		return "write it without quotes: false"
	}
	return ""
}

// listed splits a command line at its spaces, a single word stays one element.
func listed(r *Rule, s string) string {
	words := strings.Fields(short(s))
	if len(words) == 0 || strings.ContainsAny(s, `"'\`) || r.Unique {
		return strconv.Quote(short(s))
	}
	return quoted(words)
}

func numberHint(r *Rule, s string) string {
	switch m := amountForm.FindStringSubmatch(s); {
	case r.Unit == Bytes && m != nil && m[2] != "":
		return fmt.Sprintf("write it without quotes: %s%s", m[1], m[2])
	case m != nil && m[2] == "":
		return fmt.Sprintf("write it without quotes: %s", m[1])
	}
	if n, ok := strings.CutSuffix(s, "%"); ok && r.Unit == Percent && amountForm.MatchString(n) {
		return fmt.Sprintf("the unit is percent: did you mean %s?", n)
	}
	if m := milliForm.FindStringSubmatch(s); m != nil && r.Unit == Milli {
		return fmt.Sprintf("the unit is thousandths of a core: did you mean %s?", m[1])
	}
	if m := durationForm.FindStringSubmatch(s); m != nil && r.Unit == Seconds {
		n, err := strconv.ParseInt(m[1], 10, 32)
		if err == nil {
			return fmt.Sprintf("the unit is seconds: did you mean %d?", n*map[string]int64{"s": 1, "m": 60, "h": 3600}[m[2]])
		}
	}
	return ""
}

// fractionHint says how to write a fraction of a core.
func fractionHint(r *Rule, n json.Number) string {
	f, err := n.Float64()
	if r.Unit == Milli && err == nil && f > 0 && f < maxCPUMilli/1000 {
		return fmt.Sprintf("the unit is thousandths of a core: did you mean %d?", int64(f*1000+0.5))
	}
	return ""
}
