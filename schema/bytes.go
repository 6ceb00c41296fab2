package schema

import (
	"fmt"
	"math"
	"slices"
	"strconv"
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

// ParseAmount returns the amount that a text says: a number without a sign or a point, and
// perhaps a unit, one of K, M, G, T and P (1000) or Ki, Mi, Gi, Ti and Pi (1024). It reports
// false for anything else, and for what is above the largest int64.
func ParseAmount(s string) (n int64, unit, ok bool) {
	digits, times := s, int64(1)
	for i, name := range []string{"K", "M", "G", "T", "P"} {
		thousand := int64(1000)
		rest, found := strings.CutSuffix(s, name)
		if !found {
			rest, found = strings.CutSuffix(s, name+"i")
			thousand = 1024
		}
		if !found {
			continue
		}
		digits, unit = rest, true
		for range i + 1 {
			times *= thousand
		}
	}
	u, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || int64(u) > math.MaxInt64/times {
		return 0, false, false
	}
	return int64(u) * times, unit, true
}

// Count writes how many things of a kind there are, for people: "1 task", "2 tasks".
// It is for nouns whose plural ends in s.
func Count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Verb is the verb for one thing, or that for many.
func Verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// ShortList joins the first three of a list, for people, and says how many more there
// are.
func ShortList(list []string) string {
	const most = 3
	if more := len(list) - most; more > 0 {
		list = append(slices.Clone(list[:most]), fmt.Sprintf("%d more", more))
	}
	return strings.Join(list, ", ")
}

// Times writes how often something happened, for people: "once", "twice", "3 times".
func Times(n int) string {
	switch n {
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}

// Part writes how many of so many things do something, for people, with the verb for
// one thing or for many: "1 of 2 tasks runs", "0 of 1 machine fits".
func Part(n, of int, noun, one, many string) string {
	verb := many
	if n == 1 || of == 1 {
		verb = one
	}
	return fmt.Sprintf("%d of %s %s", n, Count(of, noun), verb)
}
