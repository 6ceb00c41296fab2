// Package policytext reads what is written of policies: which expressions stand for which fields of objects,
// which words these are compared with, and what has no effect. Names of built-in priorities become numbers there.
//
// In: the files of a package, as syntax, and the rules of objects. Out: changed syntax, and findings with
// their positions. It evaluates nothing, keeps nothing, and changes only what Number says.
package policytext
