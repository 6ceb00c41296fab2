// Package walk finds what the syntax of files of CUE writes at a data path: the fields, through structs
// that are joined, embedded, conditional or arguments of templates that are written as functions.
//
// In: declarations, expressions and paths. Out: fields of these. It evaluates nothing, changes nothing,
// and is safe for concurrent use.
package walk
