package valid

import (
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/musterhq/muster/schema"
)

// The grammars of texts: each match function returns what a text should be, "" if it is that.

const nameGrammar = "1 to 63 lower-case letters, digits and inner hyphens"

func matchName(s string) string {
	if schema.CheckName(s) != nil {
		return nameGrammar
	}
	return ""
}

// matchC accepts what can be an argument or an environment variable.
func matchC(s string) string {
	if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		return "a string of UTF-8 without NUL bytes"
	}
	return ""
}

// matchText accepts text of any number of lines.
func matchText(s string) string {
	for _, r := range s {
		if r == utf8.RuneError || unicode.IsControl(r) && !strings.ContainsRune("\t\r\n", r) {
			return "text of UTF-8 without control characters"
		}
	}
	return ""
}

// matchLine accepts one line of printable text.
func matchLine(s string) string {
	for _, r := range s {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return "printable text of one line"
		}
	}
	return ""
}

// pathGrammar leaves out what stands in no directory that CUE can import.
const domainGrammar = "a domain of lower-case letters, digits, hyphens and dots, such as \"muster.internal\""

// matchDomain takes domains as they end the names of tasks, of which each label is a name.
func matchDomain(s string) string {
	for label := range strings.SplitSeq(s, ".") {
		if matchName(label) != "" {
			return domainGrammar
		}
	}
	return ""
}

const pathGrammar = "a directory relative to the root of the repository, without a slash at either end"

func matchPath(s string) string {
	if s != path.Clean(s) || strings.HasPrefix(s, "/") || s == ".." || strings.HasPrefix(s, "../") || matchLine(s) != "" || strings.ContainsAny(s, `\:*?"<>|@`) {
		return pathGrammar
	}
	return ""
}

const urlPathGrammar = "a path that starts with /, without spaces"

func matchURLPath(s string) string {
	if !strings.HasPrefix(s, "/") || matchLine(s) != "" || strings.Contains(s, " ") {
		return urlPathGrammar
	}
	return ""
}

func matchLabelKey(s string) string {
	switch {
	case !schema.IsLabelKey(s):
		return schema.LabelKeyGrammar
	case strings.HasPrefix(s, schema.OwnLabels):
		return "a key that does not begin with " + schema.OwnLabels + ", which are set by the cell"
	}
	return ""
}

func matchMachineLabel(s string) string {
	if s == "machine" {
		return "a key other than machine, which is the machine's name"
	}
	return matchLabelKey(s)
}

func matchEnv(s string) string {
	ok := len(s) >= 1 && len(s) <= 128 && (s[0] < '0' || s[0] > '9')
	for i := 0; ok && i < len(s); i++ {
		ok = alnum(s[i]) || s[i] == '_'
	}
	switch {
	case !ok:
		return "letters, digits and _, not beginning with a digit"
	case strings.HasPrefix(s, "MUSTER_"):
		return "a name that does not begin with MUSTER_, which the cell sets itself"
	}
	return ""
}

func alnum(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
