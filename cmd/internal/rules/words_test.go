package rules

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// word is a phrase that the documentation of other systems has a better one for:
// readers of status, help and pages stumble over it.
type word struct {
	bad    *regexp.Regexp
	better string
}

var words = []word{
	{regexp.MustCompile(`(?i)\b(new|newer|newest|old|older|last|good|healthy|admitted|other|previous|earlier) data\b`), "version: a job has versions, data is what its tasks store"},
	{regexp.MustCompile(`(?i)needs a new (process|alloc)\b`), "restarts, replaces"},
	{regexp.MustCompile(`(?i)\b(given|gives) to (others|nobody)\b`), "rescheduled"},
	{regexp.MustCompile(`(?i)\bto be emptied\b`), "draining"},
	{regexp.MustCompile(`(?i)constraint does not hold`), "fails a constraint"},
	{regexp.MustCompile(`(?i)\b(tasks?|that|it) (has|have) (a|no) place\b`), "is placed, is pending"},
	{regexp.MustCompile(`(?i)\b(%d|1) times\b`), "once, or schema.Times"},
	{regexp.MustCompile(`(?i)\bit could not be done\b`), "failed"},
	{regexp.MustCompile(`(?i)\b(is|are|was|were|be) (told|heard)\b`), "is reported, reports"},
	{regexp.MustCompile(`(?i)\b(of late|wherefore|hither|withal)\b`), "recently"},
	{regexp.MustCompile(`(?i)\bnobody (waits|has heard|but)\b`), "say what is so"},
}

// spoken are words for what code does as if somebody spoke, and others that no manual
// of the field has: neither a comment nor a name has one, in tests or elsewhere.
var (
	spoken = regexp.MustCompile(`(?i)^(un)?(told|tells?|heard|hears?|mend(s|ed)?|stirs?|boss|bereft|feared|leavers?|drainees?)$`)
	part   = regexp.MustCompile(`[A-Z]?[a-z]+`) // of a name
	inText = regexp.MustCompile(`[A-Za-z]+`)

	// spokenNames are parts of interfaces: fields of the API, of files, of the process table.
	spokenNames = []string{"HeardAt"}
)

const plainer = "reports, logs, sends, asks; receives; repairs"

// isPage reports whether users read the file at p: pages, and the definitions.
func isPage(p string) bool {
	return strings.HasSuffix(p, ".md") && !strings.HasPrefix(p, "docs/decisions/") || strings.HasPrefix(p, "schema/cue/") && strings.HasSuffix(p, ".cue") || strings.HasSuffix(p, ".html")
}

// checkWords finds what words has in what users read: string literals, pages, and
// the comments of definitions. The simulation writes for developers.
func checkWords(t *tree) []fault {
	var out []fault
	for _, f := range t.files {
		if f.test || f.generated || strings.HasPrefix(f.dir, "cmd/internal/sim") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				return true
			}
			for _, w := range words {
				if m := w.bad.FindString(text); m != "" {
					out = append(out, t.fault(lit, "%q: say %s", m, w.better))
				}
			}
			return true
		})
	}
	for p, text := range t.pages {
		for i, line := range strings.Split(text, "\n") {
			for _, w := range words {
				if m := w.bad.FindString(line); m != "" {
					out = append(out, fault{fmt.Sprintf("%s:%d", p, i+1), fmt.Sprintf("%q: say %s", m, w.better)})
				}
			}
		}
	}
	return out
}

// checkSpoken finds what spoken has in the comments and names of Go files.
func checkSpoken(t *tree) []fault {
	var out []fault
	for _, f := range t.files {
		if f.generated {
			continue
		}
		for _, group := range f.ast.Comments {
			for _, c := range group.List {
				for _, w := range inText.FindAllString(c.Text, -1) {
					if spoken.MatchString(w) {
						out = append(out, t.fault(c, "comment with %q: say %s", w, plainer))
					}
				}
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			id, ok := n.(*ast.Ident)
			if ok && !slices.Contains(spokenNames, id.Name) && slices.ContainsFunc(part.FindAllString(id.Name, -1), spoken.MatchString) {
				out = append(out, t.fault(id, "name %s: say %s", id.Name, plainer))
			}
			return true
		})
	}
	return out
}
