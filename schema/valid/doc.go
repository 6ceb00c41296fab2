// Package valid says which data is valid: the same rules as the definitions in
// schema/cue, in Go, over plain data.
//
// In: one object as decoded JSON (numbers as json.Number). Out: the object with
// its defaults filled in, ready to be decoded into the types of package
// schema, or a list of Problems, each with its data path, what was expected
// and a hint. A field that is not in a Rule is a Problem, always: nothing is
// accepted and then ignored.
//
// It exists because users can edit the definitions in their repository. What
// passes here is valid whatever CUE said; what CUE rejects never comes here.
//
// What one object says of another is not known from its own data: the field's
// rule says what kind of object it Refers to, References finds such names, and
// Names looks them up when all packages are there.
//
// CONTRIBUTING.md lists the places of a new field and a new kind. TestDrift of
// schema/compile fails until the definitions in CUE, the rules here and the
// types of package schema agree.
//
// The package does no I/O, keeps no state and is safe for concurrent use on
// data that nobody else writes. It never changes what it is given.
package valid
