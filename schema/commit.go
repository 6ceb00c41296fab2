package schema

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Tree is the content of a commit, or of a work tree, as far as it matters to
// compilation. Paths are relative to the root and use slashes.
type Tree struct {
	// Commit is the full hash, or "" for a work tree.
	Commit string
	By     Authorship // zero for a work tree
	Files  map[string]File
	// Diagnostics are about what is in the commit and not in Files. Symbolic
	// links and submodules, which are not followed, are warnings. An error
	// refuses the directory that its path lies in.
	Diagnostics []Diagnostic
}

// Authorship is who made a commit, and what for.
type Authorship struct {
	Author  string    `json:"author,omitempty"`  // the name, without the address
	Subject string    `json:"subject,omitempty"` // the first line of the message, or the start of a long one
	At      time.Time `json:"at,omitzero"`       // when it was committed, by the clock of who did
}

// maxSubject bounds the characters of an Authorship's texts.
const maxSubject = 120

// NewAuthorship returns who made a commit with a message, without what would
// disturb a terminal.
func NewAuthorship(author, message string, at time.Time) Authorship {
	plain := func(s string) string {
		s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
		s = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "\uFFFD"), func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }), " ")
		if r := []rune(s); len(r) > maxSubject {
			s = string(r[:maxSubject-1]) + "…"
		}
		return s
	}
	return Authorship{Author: plain(author), Subject: plain(message), At: at.UTC()}
}

// maxNotFollowed bounds the warnings of one tree.
const maxNotFollowed = 20

// NotFollowed returns the warnings for the entries of a tree that are not
// followed: what each is, by path. They are sorted, and not too many.
func NotFollowed(entries map[string]string) (out []Diagnostic) {
	paths := slices.Sorted(maps.Keys(entries))
	for i, p := range paths {
		d := Diagnostic{
			Severity: Warning, Rule: RuleRepository, Position: Position{Path: strings.ToValidUTF8(p, "\uFFFD"), Line: 1, Column: 1},
			Message: entries[p] + ": not followed", Hint: "commit the files themselves",
		}
		if more := len(paths) - i; i == maxNotFollowed && more > 1 {
			d.Message = fmt.Sprintf("%s, and %d more entries that are not followed", entries[p], more-1)
			return append(out, d)
		}
		out = append(out, d)
	}
	return out
}

// File is one file of a Tree. Hash identifies Data, so that what did not
// change can be recognised without reading it; equal hashes mean equal data
// within one source of trees.
type File struct {
	Hash string
	Data []byte
}

// Compiled is what the compiler made of a commit: for each directory with
// CUE files either its data or what is wrong with it, sorted by Dir.
type Compiled struct {
	Commit   string
	By       Authorship // of the commit
	Packages []CompiledPackage
	// Diagnostics are those of the repository as a whole (no module, bad
	// file names); when one is an error there are no packages.
	Diagnostics []Diagnostic
	// Empty is that the commit holds nothing at all, which is an error among
	// Diagnostics, and yet may be meant: then AllowPrune says so.
	Empty bool
	// VersionKey is the key of the versions of secrets, sealed for the cell's identities: ""
	// of what no master has taken. See SealedSecret.Version.
	VersionKey string
	// Partial is that packages are left out which are still being compiled, as the rule of
	// their diagnostics says.
	Partial bool
	Trailers
}

// Trailers are what the messages of the commits since the one applied say beside
// the trees.
type Trailers struct {
	// AllowPrune is how many tasks may go at once though a guard would hold
	// them: what the trailers AllowPruneTrailer add up to.
	AllowPrune int
	// Promote are the values of the trailers PromoteTrailer, as they are
	// written.
	Promote []string
	// PromoteNew are those of them that stand in a commit which changes something,
	// and after which nothing has changed: they mean also what that commit brings.
	PromoteNew []string
	// Others is how many commits these are beside the newest.
	Others int
	// Alone is that the newest commit is not known to come from the one applied, so that
	// nothing counts that is said elsewhere, nor what that one has left.
	Alone bool
	// Ignored are lines that look like these trailers and are none, or have a
	// value that means nothing, each with the reason.
	Ignored []string
}

// AllowPruneTrailer is the key of a commit's trailer whose value, a number of
// tasks, says that so many are meant to go.
const AllowPruneTrailer = "Muster-Allow-Prune"

// CompiledPackage is the outcome of one directory. Package is nil when
// Diagnostics holds an error; warnings stand beside data.
type CompiledPackage struct {
	Dir         string
	Package     *Package
	Digest      Digest // of Package
	Diagnostics []Diagnostic
	// Awaits is the directory whose mistakes are the only reason that this one
	// has no data; "" if there is none. They are among its Diagnostics too.
	Awaits string
	// Policies is how many policies it declares for the objects of others.
	Policies int
	// Below says that Diagnostics hold for all directories below Dir too: none
	// of them was read.
	Below bool
}

// Mistakes returns all that is wrong with a commit, in no order: each mistake once, with
// how many packages do not compile because of it if it lies in another one.
func (c *Compiled) Mistakes() []Diagnostic {
	all := slices.Clone(c.Diagnostics)
	type mistake struct {
		at   Position
		text string
	}
	first := map[mistake]int{} // index in all
	stops := map[int]int{}     // packages other than that of the mistake, by index in all
	own := map[Position]int{}
	beside := map[int]int{} // of all, 1 for what is first said of another package than its own
	for i := range c.Packages {
		p := &c.Packages[i]
		for _, d := range p.Diagnostics {
			elsewhere := path.Dir(d.Path) != p.Dir
			at := mistake{d.Position, said(d, elsewhere)}
			if elsewhere && ofPolicy(d) {
				at = mistake{text: d.Field}
			}
			if p.Awaits != "" && d.Severity == Error {
				continue
			}
			if i, again := first[at]; again && elsewhere {
				if d.Severity == Error {
					stops[i] += 1 + beside[i] // the first package is another one, too
					beside[i] = 0
				}
				continue
			}
			first[at] = len(all)
			if elsewhere {
				beside[len(all)] = 1
			} else if d.Severity == Error {
				own[d.Position] = len(all)
			}
			all = append(all, d)
		}
	}
	all = c.withAwaited(all, own, stops)
	countStopped(all, stops)
	return all
}

// said returns the text by which mistakes at one place are the same. The message of what a library is not given names the
// number of objects of a package, so two packages have different ones: the field and the hint are compared.
func said(d Diagnostic, elsewhere bool) string {
	if elsewhere && (d.Rule == RuleNotSet || d.Rule == RuleMissingField) && d.Hint != "" {
		return d.Field[strings.LastIndexByte(d.Field, '.')+1:] + d.Hint
	}
	return d.Message
}

// ofPolicy reports whether a policy itself is wrong: that is one mistake, whatever objects show it.
func ofPolicy(d Diagnostic) bool {
	return d.Rule == RulePolicy && strings.HasPrefix(d.Field, "_policy.")
}

// withAwaited adds to mistakes those of packages that wait for another one: to stops where that is among the mistakes,
// which own has by where they are.
func (c *Compiled) withAwaited(all []Diagnostic, own map[Position]int, stops map[int]int) []Diagnostic {
	for i := range c.Packages {
		p := &c.Packages[i]
		if p.Awaits == "" || len(p.Diagnostics) == 0 {
			continue
		}
		if at, ok := own[p.Diagnostics[0].Position]; ok {
			stops[at]++
		} else {
			all = append(all, p.Diagnostics[0])
		}
	}
	return all
}

// countStopped adds to mistakes how many other packages do not compile because of them, by index in all.
func countStopped(all []Diagnostic, stops map[int]int) {
	for i, n := range stops {
		all[i].Message += fmt.Sprintf(" (%s not compile because of it)", map[bool]string{true: "1 other package does", false: fmt.Sprintf("%d other packages do", n)}[n == 1])
	}
}

// Head says what the cell's desired data is: flipped in one transaction, after
// all that it refers to is in the store.
type Head struct {
	// Commit is the last commit whose data is in the store ("applied").
	Commit string `json:"commit"`
	// By is who made Commit.
	By Authorship `json:"by,omitzero"`
	// Others is how many other commits were applied with it.
	Others int `json:"others,omitempty"`
	// Promote are the jobs (user/job), sorted, whose version of Commit needs no
	// further commit to go on beyond its canary.
	Promote []string `json:"promote,omitempty"`
	// Packages maps a directory to the digest of its Package document. A
	// directory that is stale keeps the digest of its last good version.
	Packages map[string]Digest `json:"packages"`
	// Stale maps a directory whose data of Commit was not taken to the
	// reasons.
	Stale map[string][]Diagnostic `json:"stale,omitempty"`
	// Unread says why nothing of Commit could be read: then every directory keeps
	// its data, and Stale is empty.
	Unread []Diagnostic `json:"unread,omitempty"`
	// Warnings are what is declared to no effect and what is not followed in Commit; a
	// store of an earlier release has none.
	Warnings []Diagnostic `json:"warnings,omitempty"`
	// Held are the removals that Commit asks for and that wait for leave; nil
	// if there are none.
	Held *Held `json:"held,omitempty"`
	// Rest is what the first part of Commit has left to the second, where one is to come.
	Rest Rest `json:"rest,omitzero"`
}

// Rest is what of a commit remains to be done, or counted, when the packages that take long
// to compile are applied after the others.
type Rest struct {
	// AllowPrune, Promote and PromoteNew are those of Trailers that have had no effect yet.
	AllowPrune int      `json:"allowPrune,omitempty"`
	Promote    []string `json:"promote,omitempty"`
	PromoteNew []string `json:"promoteNew,omitempty"`
	// Gone are the guards that count, sorted by name, with the tasks that they have let go
	// and how many there were before.
	Gone []Guard `json:"gone,omitempty"`
	// Stale are the reasons that the directories of Head.Stale had before Commit.
	Stale map[string][]Diagnostic `json:"stale,omitempty"`
}

// Whose says who made the commit and what for: `by Ann: "web: more memory"`; "" if
// nobody is known.
func (h *Head) Whose() string {
	if h.By.Author == "" {
		return ""
	}
	s := fmt.Sprintf("by %s: %q", h.By.Author, h.By.Subject)
	if h.Others > 0 {
		s += fmt.Sprintf(" and %s", Count(h.Others, "other commit"))
	}
	return s
}

// Held are jobs that run on with the data that was admitted last, though they
// are removed from the repository, or scaled to 0: so much at once is rarely meant.
type Held struct {
	// Guards are what holds them, sorted by name.
	Guards []Guard `json:"guards"`
	// Allowed is the number of tasks that trailers gave leave for: too few.
	Allowed int       `json:"allowed,omitempty"`
	Jobs    []HeldJob `json:"jobs"` // sorted by name
}

// Guard holds removals: those of a cell, those of a tenant, or single jobs.
type Guard struct {
	Name  GuardName `json:"name"`
	Tasks int       `json:"tasks"` // that it holds
	// Of is the number of tasks that it counts in all, and Most how many of them
	// may go at once, 0 when the repository was emptied; both are 0 for a guard
	// for which no number counts.
	Of   int `json:"of,omitempty"`
	Most int `json:"most,omitempty"`
}

// HeldJob is one job of Held.
type HeldJob struct {
	Job   string `json:"job"` // user/job
	Tasks int    `json:"tasks"`
	// Guard is the one that holds it.
	Guard GuardName `json:"guard"`
	// Tenant owns the directory that declared it, "" if none does. It counts
	// for as long as the job is held, also when the tenant is gone as well.
	Tenant string `json:"tenant,omitempty"`
}
