package schema

import "slices"

// Rule is a kind of mistake: a stable id by which tools count, filter and
// suppress diagnostics. Whoever makes a diagnostic sets it; nothing derives it from
// the message. It is "" only in documents that a release without rules has stored.
type Rule string

// The rules. An id is never renamed.
const (
	RuleQuota        Rule = "quota"         // a job asks for more than its owner's quota, or has none
	RuleOwnership    Rule = "ownership"     // something is declared where its owner may not declare it
	RuleDuplicate    Rule = "duplicate"     // an object is declared twice
	RuleInherited    Rule = "inherited"     // an object of a parent directory is changed
	RuleDependency   Rule = "dependency"    // a package that this one depends on does not compile
	RuleUnsupported  Rule = "unsupported"   // a field or kind that is not supported yet
	RuleUnknownField Rule = "unknown-field" // a field that does not exist
	RuleMissingField Rule = "missing-field" // a required field is missing
	RuleUnknownKind  Rule = "unknown-kind"  // a top-level field that is not a kind of object
	RuleOutOfRange   Rule = "out-of-range"  // a number or a length is out of bounds
	RuleInvalidName  Rule = "invalid-name"  // a name or key that is not allowed
	RuleInvalidValue Rule = "invalid-value" // a value that is not allowed
	RuleNoEffect     Rule = "no-effect"     // a field without effect, or fields that exclude each other
	RuleConflict     Rule = "conflict"      // a field has two values
	RuleNotSet       Rule = "not-set"       // a field is constrained and not set
	RuleWrongType    Rule = "wrong-type"    // a value of a wrong type
	RuleUndefined    Rule = "undefined"     // a reference to something that does not exist
	RuleImport       Rule = "import"        // an invalid import
	RuleCycle        Rule = "cycle"         // a value depends on itself
	RuleLimit        Rule = "limit"         // a package exceeds a limit of the compiler
	RuleRepository   Rule = "repository"    // the repository cannot be read
	RuleSyntax       Rule = "syntax"        // the file is not CUE
	RuleSticky       Rule = "sticky"        // tasks would lose the data in their sticky directories
	RuleSuspended    Rule = "suspended"     // a cell that is suspended admits nothing
	RuleTrailer      Rule = "trailer"       // a commit trailer without effect
	RuleInternal     Rule = "internal"      // a bug in the compiler
	RuleSecret       Rule = "secret"        // a secret in clear, or one that cannot be opened
	RuleCheck        Rule = "check"         // a check of the repository's own CUE does not hold
	RulePolicy       Rule = "policy"        // a policy of the repository does not hold, or is not valid itself
	RuleTest         Rule = "test"          // a test of the repository fails, or is not valid itself
	RuleVendored     Rule = "vendored"      // a module in cue.mod/pkg is not what cue.mod/vendor.json says
	RuleDeprecated   Rule = "deprecated"    // a field under a name that it had formerly
	RulePending      Rule = "pending"       // a package that is compiled after the rest of its commit, since it takes long
)

// RuleText is a rule with what it stands for.
type RuleText struct {
	Rule  Rule
	Short string // a phrase without capital and full stop
}

// Rules returns all rules with their short texts, in an order that never changes:
// new ones are added at the end.
func Rules() []RuleText {
	return []RuleText{
		{RuleQuota, "a job asks for more than its owner's quota, or has none"},
		{RuleOwnership, "something is declared where its owner may not declare it"},
		{RuleDuplicate, "an object is declared twice"},
		{RuleInherited, "an object of a parent directory is changed"},
		{RuleDependency, "a package that this one depends on does not compile"},
		{RuleUnsupported, "a field or kind that is not supported yet"},
		{RuleUnknownField, "a field that does not exist"},
		{RuleMissingField, "a required field is missing"},
		{RuleUnknownKind, "a top-level field that is not a kind of object"},
		{RuleOutOfRange, "a number or a length is out of bounds"},
		{RuleInvalidName, "a name or key that is not allowed"},
		{RuleInvalidValue, "a value that is not allowed"},
		{RuleNoEffect, "a field without effect, or fields that exclude each other"},
		{RuleConflict, "a field has two values"},
		{RuleNotSet, "a field is constrained and not set"},
		{RuleWrongType, "a value of a wrong type"},
		{RuleUndefined, "a reference to something that does not exist"},
		{RuleImport, "an invalid import"},
		{RuleCycle, "a value depends on itself"},
		{RuleLimit, "a package exceeds a limit of the compiler"},
		{RuleRepository, "the repository cannot be read"},
		{RuleSyntax, "the file is not CUE"},
		{RuleSticky, "tasks would lose the data in their sticky directories"},
		{RuleSuspended, "a cell that is suspended admits nothing"},
		{RuleTrailer, "a commit trailer without effect"},
		{RuleInternal, "a bug in the compiler"},
		{RuleSecret, "a secret in clear, or one that cannot be opened"},
		{RuleCheck, "a check of the repository's own CUE does not hold"},
		{RulePolicy, "a policy of the repository does not hold, or is not valid itself"},
		{RuleTest, "a test of the repository fails, or is not valid itself"},
		{RuleVendored, "a module in cue.mod/pkg is not what cue.mod/vendor.json says"},
		{RuleDeprecated, "a field under a name that it had formerly"},
		{RulePending, "a package that is compiled after the rest of its commit, since it takes long"},
	}
}

// Pending reports whether diagnostics of a package say that it is still being compiled, which
// is no mistake in it.
func Pending(ds []Diagnostic) bool {
	return slices.ContainsFunc(ds, func(d Diagnostic) bool { return d.Rule == RulePending })
}
