package valid

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/schema"
	"github.com/musterhq/muster/schema/lazyregexp"
)

// typeHint says how to write v as what r accepts.
func typeHint(r *Rule, v any) string {
	switch v := v.(type) {
	case string:
		return textHint(r, v)
	case json.Number:
		switch {
		case r == bandRule || r == soldBandRule:
			n, err := v.Int64()
			if err == nil && n >= 0 && n <= schema.MaxPriority {
				return fmt.Sprintf("did you mean %q?", schema.Priority(n).Band())
			}
		case r.Type == String:
			return fmt.Sprintf("write it as a string: %q", v)
		case r.Type == List && r.Elem.Type != Struct && r.Elem.Type != Free:
			return fmt.Sprintf("write a list: [%q]", v)
		case r.Type == Struct && len(r.Fields) == 1 && r.Fields[0].Rule.Type == Int:
			return fmt.Sprintf("did you mean {%s: %s}?", r.Fields[0].Name, short(v.String()))
		}
	case bool:
		if r.Type == String {
			return fmt.Sprintf("write it as a string: %q", strconv.FormatBool(v))
		}
		if r == drainRule && v {
			return "write drain: {}, for one without a deadline"
		}
		if r.Type == Enum && slices.Contains(r.Words, "on") {
			return fmt.Sprintf("did you mean %q?", map[bool]string{true: "on", false: "off"}[v])
		}
	case []byte:
		return `text is written in double quotes: "a"`
	case []any:
		return listHint(r, v)
	case map[string]any:
		return structHint(r, v)
	}
	return ""
}

// textHint says how to write a string as what r accepts.
func textHint(r *Rule, s string) string {
	switch r.Type {
	case Int, Priority:
		return numberHint(r, s)
	case List:
		if r.Elem.Type == Struct || r.Elem.Type == Free {
			return ""
		}
		return fmt.Sprintf("write a list: [%s]", listed(r, s))
	case Bool:
		return cmp.Or(boolHint(s), wordHint(s, r))
	case Struct:
		if r == restartRule {
			return restartHint(s)
		}
		if f := only(r); f != nil && f.Rule.Type == List {
			return fmt.Sprintf("write a struct: {%s: [%s]}", f.Name, listed(f.Rule, s))
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

// only returns the single required field of a struct, nil if there is not
// exactly one.
func only(r *Rule) (only *Field) {
	for i := range r.Fields {
		if r.Fields[i].Required {
			if only != nil {
				return nil
			}
			only = &r.Fields[i]
		}
	}
	return only
}

// listHint says how to write a list as what r accepts.
func listHint(r *Rule, l []any) string {
	switch r.Type {
	case Map:
		if len(l) == 0 {
			return "write {}"
		}
		name, value := "NAME", "value"
		switch e := l[0].(type) {
		case string:
			if k, v, ok := strings.Cut(e, "="); ok && r.Key(k) == "" {
				name, value = k, v
			}
		case map[string]any:
			k, isText := e["name"].(string)
			v, _ := e["value"].(string)
			if isText && r.Key(k) == "" {
				name, value = k, v
			}
		}
		return fmt.Sprintf("write a struct: {%s: %q}", name, short(value))
	case Struct:
		if f := only(r); f != nil && f.Rule.Type == List {
			return fmt.Sprintf("write a struct: {%s: […]}", f.Name)
		}
		return "write one struct in braces, without brackets"
	case Int, String, Enum, Priority:
		if len(l) == 1 {
			switch e := l[0].(type) {
			case string:
				return fmt.Sprintf("write it without brackets: %q", short(e))
			case json.Number:
				return "write it without brackets: " + short(e.String())
			}
		}
		return "write one value, without brackets"
	}
	return ""
}

// structHint says how to write a struct as what r accepts.
func structHint(r *Rule, m map[string]any) string {
	keys := slices.Sorted(maps.Keys(m))
	switch {
	case r.Type == List && r.Elem == nameRule && len(keys) > 0 && schema.CheckName(keys[0]) == nil:
		return fmt.Sprintf("write a list of names: [%s]", quoted(keys[:min(3, len(keys))]))
	case r.Type == List:
		return `a list is written in brackets: ["a", "b"]`
	case len(keys) == 1 && (r.Type == Int || r.Type == String):
		return "write the value itself, without braces"
	}
	return ""
}

var (
	amountForm = lazyregexp.New(`^([0-9]+(?:\.[0-9]+)?) ?(?:([KMGTPkmgtp])([iI]?))?[Bb]?$`)
	milliForm  = lazyregexp.New(`^([0-9]+)m$`)
)

// listed splits a command line at its spaces, a single word stays one element.
func listed(r *Rule, s string) string {
	words := strings.Fields(short(s))
	if len(words) == 0 || strings.ContainsAny(s, `"'\`) || r.Unique {
		return strconv.Quote(short(s))
	}
	return quoted(words)
}

// numberHint says how to write the text s as the number that r accepts.
func numberHint(r *Rule, s string) string {
	if m := milliForm.FindStringSubmatch(s); m != nil && r.Unit == Milli {
		return fmt.Sprintf("the unit is thousandths of a core: did you mean %s?", m[1])
	}
	if n, ok := strings.CutSuffix(s, "%"); ok && r.Unit == Percent && amountForm.MatchString(n) {
		return fmt.Sprintf("the unit is percent: did you mean %s?", n)
	}
	if d, err := time.ParseDuration(s); err == nil && r.Unit == Seconds && strings.Trim(s, "0123456789") != "" {
		if d%time.Second == 0 && d >= 0 {
			return fmt.Sprintf("the unit is seconds: did you mean %d?", d/time.Second)
		}
		return "the unit is whole seconds"
	}
	m := amountForm.FindStringSubmatch(s)
	switch {
	case m == nil || len(m[1]) > maxHinted:
		return ""
	case m[2] == "" && !strings.Contains(m[1], "."):
		return "write it without quotes: " + cmp.Or(strings.TrimLeft(m[1], "0"), "0") // 007 is no number of CUE
	case m[2] == "":
		return fractionHint(r, json.Number(m[1]))
	case r.Unit == Bytes:
		suffix := strings.ToUpper(m[2]) + strings.ToLower(m[3])
		f, err := strconv.ParseFloat(m[1], 64)
		if n := f * float64(multiplier[suffix]); err == nil && n == math.Trunc(n) && n < 1<<53 {
			return fmt.Sprintf("write it without quotes: %s%s", cmp.Or(strings.TrimLeft(m[1], "0"), "0"), suffix)
		}
	}
	return ""
}

// maxHinted is how many digits a number has at most that a hint repeats.
const maxHinted = 40

// multiplier is what CUE's suffixes of numbers stand for.
var multiplier = map[string]int64{
	"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
	"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50,
}

// fractionHint says how to write a number that is not an integer, or does not
// look like one.
func fractionHint(r *Rule, n json.Number) string {
	f, err := n.Float64()
	switch {
	case err != nil:
		return ""
	case f == math.Trunc(f) && math.Abs(f) < 1<<53 && (r.Unit != Milli || f >= 100):
		return fmt.Sprintf("did you mean %d?", int64(f))
	case r.Unit == Milli && f > 0 && f < maxCPUMilli/1000:
		return fmt.Sprintf("the unit is thousandths of a core: did you mean %d?", int64(f*1000+0.5))
	case r.Unit == Bytes && f > 0 && f < 1024 && f*2 == math.Trunc(f*2):
		return fmt.Sprintf("the unit is bytes: did you mean %vGi?", f)
	}
	return ""
}
